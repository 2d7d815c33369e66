"""Pages of measurements over several run folders."""
