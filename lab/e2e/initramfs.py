"""Pack a folder as an initramfs, to standard output: `initramfs.py FOLDER`, all files owned by root.

The format is "newc" of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.
"""

import sys
from collections.abc import Iterator
from pathlib import Path


def pack(root: Path) -> Iterator[bytes]:
    """The records of all files, folders and symbolic links below a folder, and the last record."""
    for inode, path in enumerate(sorted(root.rglob("*")), 1):
        yield record(str(path.relative_to(root)), inode, path.lstat().st_mode, content(path))
    yield record("TRAILER!!!", 0, 0, b"")


def content(path: Path) -> bytes:
    """The bytes of a file, or the target of a symbolic link."""
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.is_file() else b""


def record(name: str, inode: int, mode: int, data: bytes) -> bytes:
    """A header of 13 numbers, the name and the data, each padded to four bytes."""
    text = name.encode() + b"\0"
    numbers = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(text), 0)
    header = b"070701" + b"".join(b"%08x" % number for number in numbers) + text
    return padded(header) + padded(data)


def padded(data: bytes) -> bytes:
    """The data with zeros up to a multiple of four bytes."""
    return data + b"\0" * (-len(data) % 4)


if __name__ == "__main__":
    sys.stdout.buffer.writelines(pack(Path(sys.argv[1])))
