#!/bin/sh
# Builds crosslane-core and what it depends on where `std` does not exist, so that nothing in it can reach
# a clock, a file, a socket or a thread: for x86_64-unknown-none if rustup has it, else for this machine
# against a sysroot that holds only core and alloc (docs/decisions/0008).
set -eu
cd "$(dirname "$0")/../.."
out=${CARGO_TARGET_DIR:-target}/bare-metal

target=x86_64-unknown-none
if ! rustup target list --installed 2>/dev/null | grep -qx "$target"; then
    target=$(rustc -vV | sed -n 's/^host: //p')
    full=$(rustc --print sysroot)/lib/rustlib/$target/lib
    # Named by compiler, so that another compiler gets a separate sysroot.
    bare=$(mkdir -p "$out" && cd "$out" && pwd)/sysroot-$(rustc -vV | cksum | cut -d ' ' -f 1)
    mkdir -p "$bare/lib/rustlib/$target/lib"
    for crate in core alloc compiler_builtins rustc_std_workspace_core rustc_std_workspace_alloc; do
        ln -sf "$full/lib$crate"-* "$bare/lib/rustlib/$target/lib/"
    done
    # With --target these flags reach the target's crates only: procedural macros run on the host and need std.
    key=CARGO_TARGET_$(echo "$target" | tr 'a-z-' 'A-Z_')_RUSTFLAGS
    export "$key=--sysroot $bare"
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS
fi
echo "bare metal: crosslane-core without std ($target${bare:+, stripped sysroot})"
exec cargo build --quiet --release --locked -p crosslane-core --target "$target" --target-dir "$out"
