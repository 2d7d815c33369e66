"""The files that the lab writes."""

from pathlib import Path


def write_file(file: Path, contents: str | bytes) -> None:
    """Write a file, or none if the disk is full: a part must not be taken for the whole. The `OSError` names it."""
    try:
        file.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    except OSError as error:
        if error.filename is None:  # It was opened, but not all of it was written.
            error.filename = str(file)
            if file.is_file():
                file.unlink()
        raise
