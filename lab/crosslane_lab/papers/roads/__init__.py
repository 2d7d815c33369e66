"""Uploads with deadlines over recorded drives."""
