#!/bin/sh
# Redirects of home addresses through a real Open vSwitch (lab/e2e/openflow.py), in a network and a process
# namespace that are removed with everything in them. What is missing makes it a skip, with the reason.
set -eu
cd "$(dirname "$0")/.."

skip() {
    echo "e2e-openflow: skipped: $1"
    exit 0
}

[ "$(id -u)" = 0 ] || skip 'it needs root, for namespaces; run it as root'
for program in ovs-vswitchd ovsdb-server ovsdb-tool ovs-vsctl ovs-ofctl; do
    command -v "$program" > /dev/null || skip "$program is missing; on Debian: apt-get install openvswitch-switch"
done
environment=runs/e2e/openflow-python
if ! [ -e "$environment/ready" ]; then
    rm -rf "$environment"
    .venv/bin/python -m venv --system-site-packages "$environment"
    # What .venv has is found by way of its folder, since an environment inherits from the base installation only.
    .venv/bin/python -c 'import site; print(site.getsitepackages()[0])' \
        > "$("$environment/bin/python" -c 'import site; print(site.getsitepackages()[0])')/lab.pth"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --no-deps --require-hashes \
        -r lab/requirements-openflow.lock || skip 'os-ken could not be installed; connect to a package index'
    touch "$environment/ready"
fi
cargo test --release --locked -p crosslane --test main --no-run
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
timeout --kill-after=10 300 unshare --net --mount --pid --fork --kill-child --mount-proc \
    env PYTHONPATH=lab "$environment/bin/python" -m pytest -p no:cacheprovider --basetemp "$folder/tests" -s -q lab/e2e/openflow.py
