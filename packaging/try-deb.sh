#!/bin/sh
# try-deb.sh [PROGRAM]: installs, upgrades, removes and purges the package in a booted Debian (debootstrap in
# systemd-nspawn), and compares files, users, rules and settings before and after. As root; loads Debian once, 150 MB.
set -eu
cd "$(dirname "$0")/.."
program=${1:-target/release/crosslane}
base=target/deb/debian

skip() {
    echo "e2e-deb: skipped: $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip 'it needs root'
for tool in debootstrap systemd-nspawn dpkg-deb lintian; do
    command -v "$tool" > /dev/null || skip "$tool is missing; on Debian: apt-get install debootstrap systemd-container dpkg lintian"
done

packaging/debian-base.sh "$base" || skip "Debian cannot be loaded; $base/log says why"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
for one in "$version" "$version+next"; do
    packaging/deb.sh "$program" "$one"
done
first=$(ls target/deb/crosslane_"$version"_"$(dpkg --print-architecture)".deb)
next=$(ls target/deb/crosslane_"$version"+next_"$(dpkg --print-architecture)".deb)
# What is left out has its reason in packaging/debian/lintian-overrides.
lintian --allow-root --tag-display-limit 0 --fail-on error,warning "$first"

work=$(mktemp -d)
trap 'rm -rf "$work" "$next"' EXIT
cp -a "$base/system" "$work/system"
mkdir "$work/system/try"
# The commands of the guide, with the package under the name that it has there.
sed -n '/^## As a service/,/^## /s/^# //p' docs/guide/vehicle.md > "$work/system/try/guide"
[ "$(wc -l < "$work/system/try/guide")" = 3 ] || { echo 'e2e-deb: docs/guide/vehicle.md has no three commands to install'; exit 1; }
cp "$first" "$work/system/try/$(sed -n 's|^apt install \./||p' "$work/system/try/guide")"
cp "$next" "$work/system/try/next.deb"
cp packaging/try-deb-inside.sh "$work/system/try/try.sh"
cat > "$work/system/etc/systemd/system/try.service" << 'UNIT'
[Unit]
After=network.target
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/sh /try/try.sh
StandardOutput=file:/try/log
StandardError=inherit
TimeoutStartSec=300
UNIT
mkdir -p "$work/system/etc/systemd/system/multi-user.target.wants"
ln -s ../try.service "$work/system/etc/systemd/system/multi-user.target.wants/try.service"
systemd-nspawn --quiet --directory="$work/system" --private-network --register=no --keep-unit --boot > "$work/console" 2>&1 || true
cat "$work/system/try/log" 2> /dev/null || cat "$work/console"
[ -e "$work/system/try/passed" ] || { echo 'e2e-deb: FAILED'; exit 1; }
echo 'e2e-deb: passed'
