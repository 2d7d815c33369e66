"""Reports, figures and results pages from Crosslane run folders (docs/reference/records.md).

Start with `run` (the contents of a run folder), then `figures` (one file per published figure), then
`report` and `results` (the pages).
"""

__version__ = "0.1.0"
