"""The line of a generated page that names the program."""

from collections.abc import Iterable

from crosslane_lab.runs.folder import RunFolder


def made_by(folders: Iterable[RunFolder]) -> str:
    """As `Made by crosslane 0.1.0+1a2b3c4d.`: the versions of all folders, `unknown` for those without one."""
    versions = {str(folder.versions.get("crosslane") or "unknown") for folder in folders}
    return f"Made by crosslane {', '.join(sorted(versions)) or 'unknown'}."
