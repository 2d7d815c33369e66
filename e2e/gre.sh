#!/bin/sh
# GRE tunnels to roadside units on a kernel that has GRE: a test of the agent (`roadside_units`, those that name GRE)
# in an emulated machine with Debian's kernel. Nothing is installed but what is in target/gre; the machine has no
# network and no disk. What is missing makes it a skip, with the reason.
set -eu
cd "$(dirname "$0")/.."

RELEASE=6.1.0-56-cloud-amd64
PACKAGE=linux-image-${RELEASE}_6.1.192-2_amd64.deb
URL=https://deb.debian.org/debian-security/pool/updates/main/l/linux-signed-amd64/$PACKAGE
SHA256=e7d02b943971edcb8790e256c02cfab3bca6c3d37c1bf25392a57c71300615ee
TEST=roadside_units::a_unit_in_reach_has_a_subflow_over_gre_and_gives_its_slot_to_another
folder=target/gre

skip() {
    echo "e2e-gre: skipped: $1"
    exit 0
}

# A program of this machine with the libraries that it needs, at the same places in the emulated one.
take() {
    for file in "$1" $(ldd "$1" | grep -o '/[^ ]*'); do
        mkdir -p "$root$(dirname "$file")"
        cp -L "$file" "$root$file"
    done
}

# The path of what cargo built: target, name.
built() {
    .venv/bin/python -c '
import json, sys
lines = (json.loads(line) for line in open(sys.argv[1]))
found = [one["executable"] for one in lines if one.get("executable") and one["target"]["name"] == sys.argv[2]]
print(found[-1])' "$folder/build.json" "$1"
}

[ "$(uname -m)" = x86_64 ] || skip 'it emulates an x86_64 machine with programs of this one, which is none'
PATH=$PATH:/usr/sbin:/sbin
for program in qemu-system-x86_64 dpkg-deb curl modprobe depmod; do
    command -v "$program" > /dev/null || skip "$program is missing; on Debian: apt-get install qemu-system-x86 dpkg curl kmod"
done
mkdir -p "$folder"
if ! echo "$SHA256  $folder/$PACKAGE" | sha256sum --check --status 2> /dev/null; then
    curl --silent --fail --location --max-time 300 --output "$folder/$PACKAGE" "$URL" ||
        skip "$URL cannot be loaded; connect to the network, or place the package in $folder"
    echo "$SHA256  $folder/$PACKAGE" | sha256sum --check --quiet
fi
cargo test --release --locked -p crosslane --test main --no-run --message-format=json > "$folder/build.json"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/tmp" "$root/run" "$root/sbin"
dpkg-deb -x "$folder/$PACKAGE" "$work/kernel"
mkdir -p "$root/lib/modules/$RELEASE"
(cd "$work/kernel/lib/modules/$RELEASE" &&
    cp -r --parents modules.builtin* modules.order kernel/net kernel/drivers/net kernel/lib kernel/crypto "$root/lib/modules/$RELEASE")
depmod -b "$root" "$RELEASE"
# The kernel calls /sbin/modprobe when the agent asks for a kind of interface or a queue.
for program in sh mount sleep modprobe; do
    path=$(command -v "$program")
    take "$path"
    [ "$path" = "/sbin/$program" ] || [ "$program" != modprobe ] || ln -s "$path" "$root/sbin/modprobe"
done
take "$(built crosslane)"
test=$(built main)
take "$test"
cat > "$root/init" <<END
#!$(command -v sh)
PATH=$PATH TMPDIR=/tmp HOME=/tmp
export PATH TMPDIR HOME
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
modprobe tun
CI=true $test --exact $TEST --nocapture --color never
echo "GRE test ended with \$?"
echo o > /proc/sysrq-trigger
sleep 10
END
chmod +x "$root/init"
.venv/bin/python lab/e2e/initramfs.py "$root" > "$work/initramfs"
timeout --kill-after 10 300 qemu-system-x86_64 -accel tcg -cpu max -smp 2 -m 1024 -nodefaults -nographic -no-reboot \
    -serial stdio -kernel "$work/kernel/boot/vmlinuz-$RELEASE" -initrd "$work/initramfs" \
    -append 'console=ttyS0 quiet panic=-1' < /dev/null | tr -d '\r' | tee "$folder/console.log"
# The test prints the first of these lines where it has run indeed.
grep -q '^two units after' "$folder/console.log" && grep -q '^GRE test ended with 0$' "$folder/console.log" || {
    echo "e2e-gre: FAILED: see $folder/console.log"
    exit 1
}
