#!/bin/sh
# Tests the crates and the lab. Without an argument everything, several parts at the same time; with the name of a part
# only that part.
#
# Most tests of the program wait for emulated links and leave the processors idle, so three of them run at the
# same time. Everything that only computes is one more part, in the scheduling class `idle`, so that it delays
# neither a packet nor a program under test. `wires` and `coupled` measure rates, so they run alone at the end, after
# the commands of the guides.
set -eu
cd "$(dirname "$0")/.."

# The parts, those that take longest first.
parts() {
    printf '%s\n' computing hardship transfer_shares http soak transfer_paths tunnel agent_load silent_loss run library
    modules
    echo "$PROGRAMS" | sed -n 's/^crosslane test \([^ ]*\) .*/\1/p' | grep -vx main
}

# The modules of the program's main.rs that have tests: each is a process, as some look at the process they are in.
modules() {
    sed -n 's/^mod \(.*\);/\1/p' crates/crosslane/tests/main.rs | grep -vx 'program\|receiver'
}

# Crate, kind, name and path of each test program; builds what is not built. All crates at once: of fewer cargo selects
# other features of dependencies, and builds core and sim once more.
programs() {
    cargo test --release --locked --workspace --no-run --message-format=json | .venv/bin/python -c '
import json, pathlib, sys
for one in map(json.loads, sys.stdin):
    if one.get("executable") and one["profile"]["test"]:
        target = one["target"]
        print(pathlib.Path(one["manifest_path"]).parent.name, *target["kind"], target["name"], one["executable"])'
}

# Executes the test programs whose line begins with this expression, each in the folder of its crate, as cargo does. In the
# background a shell ignores SIGINT, by which tests end programs.
execute() {
    expression=$1
    shift
    echo "$PROGRAMS" | grep "^$expression " | {
        found=
        while read -r crate _ _ path; do
            found=yes
            printf '\n%s\n' "$path $*"
            (cd "crates/$crate" && env --default-signal=INT "$path" "$@" < /dev/null) || exit 1
        done
        [ -n "$found" ]
    }
}

run() {
    case $1 in
        computing)
            execute '\(core\|sim\)' &&
                cargo test --release --locked --workspace --doc &&
                .venv/bin/pytest -q lab &&
                make --no-print-directory conformance-check BUILT=yes
            ;;
        guides) e2e/guides.sh ;;
        library) execute 'crosslane \(lib\|bin\)' ;;
        *)
            if modules | grep -qx "$1"; then
                execute 'crosslane test main' "$1::"
            else
                execute "crosslane test $1"
            fi
            ;;
    esac
}

[ -n "${PROGRAMS:-}" ] || PROGRAMS=$(programs)
export PROGRAMS
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
        [ "$1" != computing ] || chrt --idle --pid 0 $$
        # In one piece, so that the output of parts does not mix.
        began=$(date +%s)
        output=$(run "$1" 2>&1) && status=0 || status=$?
        printf '\n== %s (%s s)\n%s\n' "$1" $(($(date +%s) - began)) "$output"
        [ "$status" = 0 ] || printf '\n== %s FAILED\n' "$1"
        exit "$status"
        ;;
esac
