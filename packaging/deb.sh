#!/bin/sh
# deb.sh [PROGRAM [VERSION]]: makes target/deb/crosslane_VERSION_ARCHITECTURE.deb of a program that was built.
set -eu
cd "$(dirname "$0")/.."

program=${1:-target/release/crosslane}
version=${2:-$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)}
maintainer="${DEBFULLNAME:-Crosslane maintainers} <${DEBEMAIL:-maintainers@crosslane.invalid}>"

[ -x "$program" ] || { echo "deb: there is no $program; run make build"; exit 2; }
# e_machine of the ELF header: 183 is arm64. A program of another machine runs under qemu.
native=$(dpkg --print-architecture)
case $(od -An -tu2 -j18 -N2 "$program" | tr -d ' ') in
    183) architecture=arm64 prefix=aarch64-linux-gnu- ;;
    *) architecture=$native prefix= ;;
esac
[ "$architecture" != "$native" ] || prefix=
emulator=${prefix:+qemu-aarch64-static -L /usr/aarch64-linux-gnu}
for tool in dpkg-deb "${prefix}strip" "${prefix}objdump" ${prefix:+qemu-aarch64-static}; do
    command -v "$tool" > /dev/null || { echo "deb: $tool is missing; on Debian: apt-get install dpkg binutils, for arm64 also gcc-aarch64-linux-gnu qemu-user-static"; exit 2; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/crosslane
share=$root/usr/share
umask 022

mkdir -p "$root/usr/bin" "$work/man" "$root/etc/crosslane"
installed=$root/usr/bin/crosslane
"${prefix}strip" -o "$installed" "$program"
chmod 755 "$installed"
crosslane() {
    $emulator "$installed" "$@"
}

crosslane man --out "$work/man"
for page in "$work"/man/*.1; do
    install -D -m 644 "$page" "$share/man/man1/$(basename "$page")"
done
gzip -9n "$share"/man/man1/*

mkdir -p "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
crosslane completion bash > "$share/bash-completion/completions/crosslane"
crosslane completion zsh > "$share/zsh/vendor-completions/_crosslane"
crosslane completion fish > "$share/fish/vendor_completions.d/crosslane.fish"

install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/*.service packaging/*.timer
install -D -m 644 -t "$share/crosslane/crosslane-agent.service.d" packaging/crosslane-agent.service.d/*.conf
install -D -m 755 packaging/dispatcher/path-route "$root/usr/lib/crosslane/path-route"
install -D -m 755 packaging/dispatcher/networkmanager "$root/usr/lib/NetworkManager/dispatcher.d/60-crosslane"
for state in routable off; do
    install -D -m 755 packaging/dispatcher/networkd "$root/usr/lib/networkd-dispatcher/$state.d/60-crosslane"
done

doc=$share/doc/crosslane
install -D -m 644 -t "$doc/examples" packaging/examples/*.toml
install -D -m 644 packaging/debian/copyright "$doc/copyright"
install -D -m 644 packaging/debian/lintian-overrides "$share/lintian/overrides/crosslane"
# The crates in the program, with their licences.
cargo tree --locked --offline -p crosslane -e normal --prefix none -f '{p} {l}' 2> /dev/null |
    sed 's/ (\/[^)]*)//; s/ (\*)$//' | sort -u > "$doc/crates.txt"
date=$(date -R -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || date +%s)}")
printf 'crosslane (%s) unstable; urgency=medium\n\n  * The changes are in CHANGELOG.md of the sources.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$date" | gzip -9n > "$doc/changelog.gz"

mkdir -p "$root/DEBIAN"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
libc=$("${prefix}objdump" -T "$installed" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
cat > "$root/DEBIAN/control" << CONTROL
Package: crosslane
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Section: net
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
Recommends: iproute2
Description: keeps a vehicle's connections alive over every network in reach
 Crosslane monitors the radios of a vehicle, decides which network carries what,
 and reconfigures Multipath TCP of the kernel before a link breaks. A tunnel
 carries all other traffic over all networks at once to a gateway.
 .
 It also emulates drives on this machine's kernel, and simulates them.
CONTROL
(cd "$root" && find usr etc -type f -exec md5sum {} +) > "$root/DEBIAN/md5sums"

mkdir -p target/deb
dpkg-deb --root-owner-group --build "$root" target/deb
