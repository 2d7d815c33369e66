#!/bin/sh
# arm64.sh: builds the program for arm64, makes target/deb/crosslane_…_arm64.deb, and runs the program under qemu's emulation
# of a user's process. That has neither MPTCP nor namespaces, so drives and agents are not tried.
set -eu
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu
program=${CARGO_TARGET_DIR:-target}/$target/release/crosslane

missing() {
    echo "arm64: $1 is missing; $2"
    exit 2
}
for tool in aarch64-linux-gnu-gcc aarch64-linux-gnu-objdump; do
    command -v "$tool" > /dev/null || missing "$tool" 'on Debian: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross'
done
command -v qemu-aarch64-static > /dev/null || missing qemu-aarch64-static 'on Debian: apt-get install qemu-user-static'
[ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || missing "Rust's library for $target" \
    "rustup target add $target, or on Debian: apt-get install libstd-rust-dev:arm64"

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
cargo build --release --locked -p crosslane --target "$target"
packaging/deb.sh "$program"

export QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
crosslane() {
    qemu-aarch64-static "$program" "$@"
}
crosslane --version
crosslane check scenarios/pass-by.toml
crosslane keygen --out "$folder/key"
[ "$(crosslane keygen --public "$folder/key")" = "$(target/release/crosslane keygen --public "$folder/key")" ] ||
    { echo 'arm64: FAILED: another public key of the same private key'; exit 1; }
drive='scenarios/pass-by.toml --strategy kernel,threshold --seed 1..2'
# shellcheck disable=SC2086
crosslane simulate $drive --out "$folder/arm64"
# shellcheck disable=SC2086
target/release/crosslane simulate $drive --out "$folder/native" > /dev/null
if cmp "$folder/arm64/summary.json" "$folder/native/summary.json"; then
    echo 'arm64: the same seeds have the same results as on this machine'
else
    echo 'arm64: the results differ from those of this machine'
fi
echo 'arm64: passed; not tried: everything that needs the kernel of an arm64 machine (agent, drive, tunnel, mptcp)'
