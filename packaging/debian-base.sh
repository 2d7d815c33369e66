#!/bin/sh
# debian-base.sh FOLDER: a small Debian of this machine's release in FOLDER/system, loaded once (150 MB).
set -eu
[ ! -e "$1/ready" ] || exit 0
suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
mkdir -p "$1"
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,iproute2,man-db,procps,python3 "$suite" "$1/system" > "$1/log"
touch "$1/ready"
