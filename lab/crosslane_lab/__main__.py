"""`python -m crosslane_lab` is `crosslane-lab`."""

from crosslane_lab.cli import main

raise SystemExit(main())
