#!/bin/sh
# Tests the crates and the lab once the test programs are built. Without an argument everything, several parts
# at the same time; with the name of a part only that part.
#
# Most tests of the program wait for emulated links and leave the processors idle, so three of them run at the
# same time. Everything that only computes is one more part, in the scheduling class `idle`, so that it delays
# neither a packet nor a program under test. `wires` and `coupled` measure rates, so they run alone at the end, after
# the commands of the guides.
set -eu
cd "$(dirname "$0")/.."

# The parts, those that take longest first.
parts() {
    printf '%s\n' computing hardship silent_loss tunnel lifecycle tunnel_mtu library
    # A test is a file, or a folder with main.rs.
    (cd crates/crosslane/tests && ls -d *.rs */main.rs) | sed 's|/main.rs$||; s|\.rs$||'
}

# A command of the crates or the lab that only computes.
compute() {
    printf '\n%s\n' "$*"
    chrt --idle 0 "$@"
}

run() {
    case $1 in
        computing)
            compute cargo test --release --locked -p crosslane-core -p crosslane-sim &&
                compute cargo test --release --locked -p crosslane --doc &&
                compute .venv/bin/pytest -q lab &&
                compute make --no-print-directory conformance-check BUILT=yes
            ;;
        guides) e2e/guides.sh ;;
        library) cargo test --release --locked -p crosslane --lib --bins ;;
        *) cargo test --release --locked -p crosslane --test "$1" ;;
    esac
}

case ${1:-} in
    '')
        failed=
        parts | awk '$0 != "wires" && $0 != "coupled" && !seen[$0]++' | xargs -P 4 -n 1 "$0" || failed=yes
        "$0" guides || failed=yes
        "$0" wires || failed=yes
        "$0" coupled || failed=yes
        [ -z "$failed" ] || { echo 'tests FAILED: see each FAILED above'; exit 1; }
        ;;
    *)
        # In one piece, so that the output of parts does not mix.
        output=$(run "$1" 2>&1) && status=0 || status=$?
        printf '\n== %s\n%s\n' "$1" "$output"
        [ "$status" = 0 ] || printf '\n== %s FAILED\n' "$1"
        exit "$status"
        ;;
esac
