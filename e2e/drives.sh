#!/bin/sh
# Drives the named scenarios on this machine's kernel and holds what comes out against the [[expect]] of each:
# all of them, whatever one brings. From the environment: SEEDS, JOBS, CI.
set -u
cd "$(dirname "$0")/.."

# Why no drive can run here; nothing if one can.
obstacle() {
    if [ "$(cat /proc/sys/net/mptcp/enabled 2>/dev/null)" != 1 ]; then
        echo "the kernel has no MPTCP, or it is switched off (sysctl net.mptcp.enabled)"
    elif ! (exec <>/dev/net/tun) 2>/dev/null; then
        echo "/dev/net/tun cannot be opened; load the module tun, or allow this user to open it"
    elif ! unshare --net --pid --fork true 2>/dev/null && ! unshare -Ur --net --pid --fork true 2>/dev/null; then
        echo "no network namespace can be made; run as root, or allow user namespaces"
    fi
}

# The strategies that a scenario's expectations speak of; without a program that is not there.
strategies() {
    missing=$(command -v wireguard-go >/dev/null || echo wireguard-go)
    grep -o 'strategy = "[^"]*"' "$1" | cut -d '"' -f 2 | sort -u | grep -vx "${missing:--}" | paste -sd ,
}

because=$(obstacle)
if [ -n "$because" ]; then
    echo "e2e NOT RUN: $because"
    [ -z "${CI:-}" ]
    exit
fi

failed=
for name; do
    file=scenarios/$name.toml
    printf '\n%s\n' "$name: $(strategies "$file")"
    target/release/crosslane drive "$file" --strategy "$(strategies "$file")" --seed "${SEEDS:-1}" \
        --jobs "${JOBS:-1}" --out "runs/e2e/$name" --expect || failed="$failed $name"
done
[ -z "$failed" ] || { printf '\n%s\n' "e2e FAILED:$failed"; exit 1; }
printf '\n%s\n' "e2e passed: $*"
