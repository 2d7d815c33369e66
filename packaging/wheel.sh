#!/bin/sh
# wheel.sh [PROGRAM]: makes target/wheel/crosslane_lab-….whl, the lab with the program inside, and tries it: installed in a new
# environment it simulates a drive and reports on it. The first try loads the lab's dependencies.
set -eu
cd "$(dirname "$0")/.."
program=${1:-target/release/crosslane}
[ -x "$program" ] || { echo "wheel: there is no $program; run make build"; exit 2; }
for tool in objdump strip; do
    command -v "$tool" > /dev/null || { echo "wheel: $tool is missing; on Debian: apt-get install binutils"; exit 2; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of a copy: setuptools writes into the folder.
cp -r lab "$work/lab"
.venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$work" "$work/lab"
strip -o "$work/crosslane" "$program"
libc=$(objdump -T "$work/crosslane" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
rm -rf target/wheel
wheel=$(.venv/bin/python packaging/wheel.py "$work"/crosslane_lab-*.whl "$work/crosslane" "${libc#GLIBC_}" target/wheel)
echo "$wheel: $(stat -c %s "$wheel") bytes"

.venv/bin/python -m venv "$work/environment"
"$work/environment/bin/pip" install --quiet --disable-pip-version-check "$wheel"
scenario=$PWD/scenarios/pass-by.toml
cd "$work"
environment/bin/crosslane --version
environment/bin/crosslane simulate "$scenario" --strategy kernel,threshold --seed 1..3 --out runs
environment/bin/crosslane-lab report runs
[ -s runs/report.html ] || { echo 'wheel: FAILED: no report'; exit 1; }
# The lab finds the program beside it.
environment/bin/crosslane-lab reproduce --help | grep -q 'environment/bin/crosslane'
echo 'wheel: passed'
