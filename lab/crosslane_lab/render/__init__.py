"""Figures, tables and numbers as SVG, PNG and Markdown."""
