"""Reports, figures and results pages from Crosslane run folders (docs/formats.md).

Start at `run` (what a run folder holds), then `figures` (one file per published figure), then
`report` and `results` (what is made of them).
"""

__version__ = "0.1.0"
