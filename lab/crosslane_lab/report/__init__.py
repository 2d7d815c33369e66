"""The report of one run folder."""
