#!/bin/sh
# Drives the named scenarios on this machine's kernel and checks the results against the [[expect]] of each:
# all of them, even after a failure. An argument is NAME, or NAME:STRATEGY,… for only these strategies; an
# expectation that compares with another strategy is then not decided. From the environment: SEEDS, CI.
set -u
cd "$(dirname "$0")/.."

# Prints why drives cannot run here; prints nothing if they can.
obstacle() {
    if [ "$(cat /proc/sys/net/mptcp/enabled 2>/dev/null)" != 1 ]; then
        echo "the kernel has no MPTCP, or it is disabled (sysctl net.mptcp.enabled)"
    elif ! (exec <>/dev/net/tun) 2>/dev/null; then
        echo "/dev/net/tun cannot be opened; load the module tun, or allow this user to open it"
    elif ! unshare --net --pid --fork true 2>/dev/null && ! unshare -Ur --net --pid --fork true 2>/dev/null; then
        echo "no network namespace can be created; run as root, or allow user namespaces"
    fi
}

# The strategies in a scenario's expectations, without those whose program is not installed.
strategies() {
    missing=$(command -v wireguard-go >/dev/null || echo wireguard-go)
    grep -o 'strategy = "[^"]*"' "$1" | cut -d '"' -f 2 | sort -u | grep -vx "${missing:--}" | paste -sd ,
}

reason=$(obstacle)
if [ -n "$reason" ]; then
    echo "e2e NOT RUN: $reason"
    [ -z "${CI:-}" ]
    exit
fi

failed=
for argument; do
    name=${argument%%:*}
    file=scenarios/$name.toml
    case $argument in
        *:*) strategies=${argument#*:} ;;
        *) strategies=$(strategies "$file") ;;
    esac
    printf '\n%s\n' "$name: $strategies"
    target/release/crosslane drive "$file" --strategy "$strategies" --seed "${SEEDS:-1}" \
        --out "runs/e2e/$name" --expect || failed="$failed $name"
done
[ -z "$failed" ] || { printf '\n%s\n' "e2e FAILED:$failed"; exit 1; }
printf '\n%s\n' "e2e passed: $*"
