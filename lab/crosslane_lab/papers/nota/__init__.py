"""The figures and tables of Nota 2020 (MP-DPA), re-simulated and compared with the published values."""
