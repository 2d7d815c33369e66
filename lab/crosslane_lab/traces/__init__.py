"""Rates of links over time, made up where the recordings are not public."""
