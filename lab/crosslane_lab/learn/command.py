"""`crosslane-lab learn`: collect, import, analyse, train, bound, harm, chance, and a tree fitted as on board."""

import argparse

from crosslane_lab.learn import analyse, bound, collect, harm, recorded, refit, repeat, train


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    parser = commands.add_parser("learn", help="learn which path is to be first", description=__doc__)
    parts = parser.add_subparsers(required=True, metavar="PART")
    for part in (collect, recorded, analyse, train, bound, harm, repeat, refit):
        part.add(parts)
