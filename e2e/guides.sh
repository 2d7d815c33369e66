#!/bin/sh
# With SLOW=yes also commands that take minutes, half an hour in all.
# Executes the commands of every guide (lab/e2e/guides.py), and shows the page of an agent in Chromium (lab/e2e/page.py), in namespaces that are removed with everything in them.
set -eu
cd "$(dirname "$0")/.."

not_run() {
    echo "e2e NOT RUN: the commands of the guides: $1"
    exit 0
}

[ "$(id -u)" = 0 ] || not_run 'they need root, for namespaces; run it as root'
for program in ip unshare sysctl ping; do
    command -v "$program" > /dev/null || not_run "$program is missing; on Debian: apt-get install iproute2 procps iputils-ping"
done
[ -x target/release/crosslane ] || not_run 'target/release/crosslane is missing; run make build'
[ $# -gt 0 ] || set -- lab/e2e/guides.py lab/e2e/page.py
[ -n "${SLOW:-}" ] && export SLOW || unset SLOW
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Everything that is written to /etc, and the names of network namespaces, is gone afterwards.
timeout --kill-after=10 $([ -n "${SLOW:-}" ] && echo 3600 || echo 300) unshare --net --mount --pid --fork --kill-child --mount-proc sh -c '
    set -e
    mount -t tmpfs tmpfs "$0"
    mkdir "$0/upper" "$0/work"
    mount -t overlay overlay -o "lowerdir=/etc,upperdir=$0/upper,workdir=$0/work" /etc
    mount -t tmpfs tmpfs /run
    mkdir -p /etc/crosslane
    echo "198.51.100.1 HOST depot" >> /etc/hosts
    echo "its:x:1500:1500::/:/bin/false" >> /etc/passwd
    ip link set lo up
    exec .venv/bin/python -m pytest -p no:cacheprovider --basetemp "$0/tests" -q -rs "$@"
' "$folder" "$@"
