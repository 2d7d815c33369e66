#!/bin/sh
# try-container.sh: builds both targets of packaging/Containerfile with buildah and runs them. As root. The base image is made
# by debootstrap, as for try-deb.sh, so no registry is needed.
set -eu
cd "$(dirname "$0")/.."
base=target/deb/debian

skip() {
    echo "e2e-container: skipped: $1"
    exit 0
}
[ "$(id -u)" = 0 ] || skip 'it needs root'
for tool in buildah debootstrap; do
    command -v "$tool" > /dev/null || skip "$tool is missing; on Debian: apt-get install buildah debootstrap"
done
ls target/deb/crosslane_*_"$(dpkg --print-architecture)".deb > /dev/null 2>&1 || { echo 'e2e-container: there is no package; run make deb'; exit 2; }
packaging/debian-base.sh "$base" || skip "Debian cannot be loaded; $base/log says why"

# No daemon, no user namespace and no overlay: it works in a container too.
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
storage=$(mktemp -d)
trap 'rm -rf "$storage"' EXIT
buildah() {
    command buildah --root "$storage/root" --runroot "$storage/run" "$@"
}
image=docker.io/library/debian:bookworm-slim
working=$(buildah from scratch)
buildah add --quiet "$working" "$base/system" / > /dev/null
# The package index may be behind a proxy that this machine trusts.
certificates=/etc/ssl/certs/ca-certificates.crt
if [ -e "$certificates" ]; then
    buildah add --quiet "$working" "$certificates" /etc/pip.pem > /dev/null
    buildah run "$working" -- sh -c 'printf "[global]\ncert = /etc/pip.pem\n" > /etc/pip.conf'
fi
buildah commit --quiet --rm "$working" "$image" > /dev/null

for target in gateway laboratory; do
    buildah build --pull=never --quiet --file packaging/Containerfile --target "$target" --tag "crosslane-$target" . > /dev/null
    echo "crosslane-$target: built"
done
working=$(buildah from --pull=never crosslane-gateway)
buildah run "$working" -- crosslane --version
working=$(buildah from --pull=never crosslane-laboratory)
buildah run "$working" -- crosslane simulate /usr/share/crosslane/scenarios/pass-by.toml --strategy kernel,threshold --seed 1..3 --out /tmp/runs
buildah run "$working" -- crosslane-lab report /tmp/runs
echo 'e2e-container: passed'
