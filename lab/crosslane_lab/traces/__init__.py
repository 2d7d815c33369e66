"""Synthetic rates of links over time, where the recordings are not public."""
