"""The agreement of the simulator with the kernel."""
