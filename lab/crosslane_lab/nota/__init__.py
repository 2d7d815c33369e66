"""The figures and tables of Nota 2020 (MP-DPA), simulated anew and held against what its text tells."""
