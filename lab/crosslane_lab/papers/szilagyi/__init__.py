"""Szilágyi & Kovács 2022 (MPT-GRE), re-measured on the kernel."""
