"""Adds a program to a pure wheel: wheel.py WHEEL PROGRAM GLIBC-VERSION FOLDER; prints the new file.

The program becomes a script, which pip installs beside Python (binary distribution format, `.data/scripts`). The name
says for which machine and from which glibc on it is (PEP 600).
"""

import base64
import hashlib
import platform
import sys
import zipfile
from pathlib import Path


def main(wheel: Path, program: Path, libc: str, folder: Path) -> Path:
    """Write the wheel and return its path."""
    major, minor = libc.split(".")[:2]
    tag = f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"
    name, version = wheel.name.split("-")[:2]
    folder.mkdir(parents=True)
    made = folder / f"{name}-{version}-{tag}.whl"
    record: list[str] = []
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as new:

        def add(entry: zipfile.ZipInfo, data: bytes) -> None:
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{entry.filename},sha256={digest},{len(data)}\n")

        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                continue
            if entry.filename.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("Root-Is-Purelib: true", "Root-Is-Purelib: false")
                data = text.replace("Tag: py3-none-any", f"Tag: {tag}").encode()
            add(entry, data)
        script = zipfile.ZipInfo(f"{name}-{version}.data/scripts/crosslane")
        script.external_attr = 0o100755 << 16
        add(script, program.read_bytes())
        listed = f"{name}-{version}.dist-info/RECORD"
        new.writestr(listed, "".join(record) + f"{listed},,\n")
    return made


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], Path(sys.argv[4])))
