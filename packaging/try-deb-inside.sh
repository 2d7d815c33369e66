#!/bin/sh
# The steps of try-deb.sh, as a unit of the booted Debian.
set -eu
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin

step() { echo "== $1"; }

# Everything that a package could leave: files outside of what dpkg and the system write at run time, users, groups,
# rules, tables, settings of the network, and units that failed.
state() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /try -o -path /var/log \
        -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/cache -o -path /var/lib/systemd \) -prune -o -print | sort
    cat /etc/passwd /etc/group
    ip -4 rule show
    ip -4 route show table all
    grep -r . /proc/sys/net/mptcp /proc/sys/net/ipv4/conf 2> /dev/null | sort
    systemctl list-unit-files --no-legend 'crosslane*' || true
}

# Waits at most 10 s until a command succeeds.
until_true() {
    for _ in $(seq 100); do
        if "$@" > /dev/null 2>&1; then return 0; fi
        sleep 0.1
    done
    echo "FAILED: $*"
    journalctl --no-pager -n 20 -u crosslane-agent 2> /dev/null || true
    return 1
}

number=0
for interface in wwan0 wwan1 wlan0; do
    ip link add "$interface" type veth peer name "far$number"
    ip link set "far$number" up
    ip address add "192.0.2.$((2 + 16 * number))/28" dev "$interface"
    ip link set "$interface" up
    ip route add default via "192.0.2.$((1 + 16 * number))" dev "$interface" metric "$((100 + number))"
    number=$((number + 1))
done
ip link set lo up
state > /try/before

step 'install, configure and start: the commands of the guide'
began=$(date +%s%N)
cd /try
while read -r command; do
    echo "# $command"
    sh -c "$command" < /dev/null
    case $command in
        'apt install '*)
            systemctl is-enabled crosslane-agent.service && { echo 'FAILED: enabled without a configuration'; exit 1; }
            ;;
    esac
done < /try/guide
cd /
until_true crosslane status
[ "$(cat /proc/sys/net/mptcp/pm_type)" = 1 ]
# The first managed connection, of a program that asks for MPTCP: from one address of this machine to another.
cat > /try/connect.py << 'PYTHON'
import socket, time
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
listener.bind(("192.0.2.2", 7411)); listener.listen()
client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
client.connect(("192.0.2.2", 7411)); peer = listener.accept()[0]
while True:
    client.send(b"x"); peer.recv(1); time.sleep(0.2)
PYTHON
python3 /try/connect.py &
connection=$!
managed() { crosslane connections --json | grep -q token; }
until_true managed
ms=$((($(date +%s%N) - began) / 1000000))
echo "from the first command to the first managed connection: $ms ms, $(wc -l < /try/guide) commands"
crosslane status
crosslane check /etc/crosslane/agent.toml

step 'version, manual pages, completion'
crosslane --version
for page in /usr/share/man/man1/crosslane*.1.gz; do
    complaint=$(LC_ALL=C.UTF-8 MANROFFSEQ= man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 > /dev/null)
    [ -z "$complaint" ] || { echo "FAILED: $page: $complaint"; exit 1; }
done
bash -n /usr/share/bash-completion/completions/crosslane

step 'rules and routes of the agent'
of_agent() { ip -4 rule show priority 32765; }
until_three_addresses() { [ "$(of_agent | grep -c 'from 192\.0\.2\.')" = 3 ]; }
until_true until_three_addresses
ip -4 route get 198.51.100.1 from 192.0.2.18 | grep -q 'dev wwan1'
# Where a connection without an address begins: on the path that carries, not on that of the main table's default route.
begins_where_it_goes() { ip -4 route get 198.51.100.1 | grep -q 'dev wwan1'; }
until_true begins_where_it_goes

step 'dispatcher: only where the agent sets no routes'
/usr/lib/NetworkManager/dispatcher.d/60-crosslane wwan1 up
[ "$(ip -4 rule show priority 16800 | wc -l)" = 0 ]
sed -i 's/^\[service\]$/[service]\nroutes = false/' /etc/crosslane/agent.toml
crosslane check /etc/crosslane/agent.toml
systemctl restart crosslane-agent
until_true managed
[ "$(of_agent | wc -l)" = 0 ]
/usr/lib/NetworkManager/dispatcher.d/60-crosslane wwan1 up
IFACE=wwan0 /usr/lib/networkd-dispatcher/routable.d/60-crosslane
/usr/lib/NetworkManager/dispatcher.d/60-crosslane lo up
[ "$(ip -4 rule show priority 16800 | wc -l)" = 2 ]
ip -4 route get 198.51.100.1 from 192.0.2.18 | grep -q 'dev wwan1'
ip -4 route get 198.51.100.1 from 192.0.2.2 | grep -q 'dev wwan0'
ip link set wwan1 down
/usr/lib/NetworkManager/dispatcher.d/60-crosslane wwan1 down
ip address flush dev wwan1
/usr/lib/NetworkManager/dispatcher.d/60-crosslane wwan1 down
[ "$(ip -4 rule show priority 16800 | wc -l)" = 1 ]
ip link set wwan1 up
ip address add 192.0.2.18/28 dev wwan1
ip route add default via 192.0.2.17 dev wwan1 metric 101
/usr/lib/NetworkManager/dispatcher.d/60-crosslane wwan1 up

step 'upgrade: the agent restarts with the configuration that is there'
former=$(systemctl show -P MainPID crosslane-agent)
dpkg -i /try/next.deb
until_true managed
[ "$(systemctl show -P MainPID crosslane-agent)" != "$former" ]
[ "$(systemctl show -P NRestarts crosslane-agent)" = 0 ]

step 'the controller'
crosslane keygen --out /etc/crosslane/controller.key > /dev/null
printf 'listen = "127.0.0.1:4761"\nkey = "/etc/crosslane/controller.key"\n' > /etc/crosslane/controller.toml
systemctl start crosslane-controller
until_true crosslane controller status
systemctl stop crosslane-controller

step 'a receiver of files'
printf 'OPTIONS=--listen 127.0.0.1:7422 --key /etc/crosslane/receiver.key --sender-key %s\n' \
    "$(crosslane keygen --out /try/sender.key)" > /etc/crosslane/receive.env
to=$(crosslane keygen --out /etc/crosslane/receiver.key)
systemctl enable --now crosslane-receive
crosslane send /try/guide --to 127.0.0.1:7422 --key /try/sender.key --receiver-key "$to"
cmp /try/guide /var/lib/crosslane-receive/guide
systemctl stop crosslane-receive
# Purge keeps it.
rm -r /var/lib/crosslane-receive

step 'a tree fitted to the trials, by its timer'
# Rows as an agent keeps them after weeks, 4 MB: the path with the shorter RTT brought twice as much in nine of ten.
cat > /try/rows.py << 'PYTHON'
import json, random
draw = random.Random(1)
def row(number):
    a, b = ({"rtt_ms": draw.uniform(10, 100), "delivery_mbit_s": draw.uniform(5, 8), "cwnd": 40.0, "loss": 0.0,
        "signal_dbm": draw.uniform(-110, -70), "sinr_db": draw.uniform(0, 30), "rsrq_db": draw.uniform(-20, -5)} for _ in "ab")
    first_wins = (a["rtt_ms"] < b["rtt_ms"]) ^ (draw.random() < 0.1)
    return {"version": 1, "number": number, "strategy": "learned", "a": a, "b": b, "was_a_first": True,
        "is_a_preferred": number % 2 == 0, "goodput_mbit_s": [10.0, 5.0] if first_wins else [5.0, 10.0], "delay_ms": [30.0, 30.0]}
rows = [json.dumps(row(number)) + "\n" for number in range(1, 8001)]
for name, part in ("trials.jsonl.1", rows[:4000]), ("trials.jsonl", rows[4000:]):
    open("/var/lib/crosslane/" + name, "w").writelines(part)
PYTHON
systemctl stop crosslane-agent
python3 /try/rows.py
chown --reference=/var/lib/crosslane/. /var/lib/crosslane/trials.jsonl*
echo '{"format": "crosslane-tree", "version": 1, "strategy": "learned", "nodes": [{"a_first": 0.5}]}' > /var/lib/crosslane/tree.json
cp /etc/crosslane/agent.toml /try/agent.toml
sed -i '/^\[strategy\]/,/^\[/{/^[a-z]/d}; /^\[strategy\]/d' /etc/crosslane/agent.toml
cat >> /etc/crosslane/agent.toml << 'CONFIGURATION'

[strategy]
name = "learned"
tree = "/var/lib/crosslane/tree.json"
store = "/var/lib/crosslane/trials.jsonl"
CONFIGURATION
crosslane check /etc/crosslane/agent.toml
systemctl start crosslane-agent
until_true crosslane status
# At once instead of ten minutes after the boot.
mkdir -p /etc/systemd/system/crosslane-refit.timer.d
printf '[Timer]\nOnBootSec=\nOnActiveSec=1s\nRandomizedDelaySec=0\n' > /etc/systemd/system/crosslane-refit.timer.d/now.conf
systemctl daemon-reload
systemctl start crosslane-refit.timer
fitted() { crosslane status --json | grep -q 'by crosslane refit'; }
for _ in $(seq 12); do fitted && break; sleep 5; done
until_true fitted
[ "$(systemctl show -P Result crosslane-refit)" = success ]
journalctl --no-pager -o cat -u crosslane-refit | grep 'a new tree'
[ -s /var/lib/crosslane/tree.json.former ]
systemctl stop crosslane-refit.timer
rm -r /etc/systemd/system/crosslane-refit.timer.d
systemctl daemon-reload
cp /try/agent.toml /etc/crosslane/agent.toml
systemctl restart crosslane-agent
until_true crosslane status

step 'a drop-in'
mkdir -p /etc/systemd/system/crosslane-agent.service.d
cp /usr/share/crosslane/crosslane-agent.service.d/*.conf /etc/systemd/system/crosslane-agent.service.d/
systemctl daemon-reload
systemd-analyze verify crosslane-agent.service crosslane-controller.service crosslane-receive.service crosslane-refit.service crosslane-refit.timer

step 'remove and purge'
dpkg -r crosslane
[ -e /etc/crosslane/agent.toml ] || { echo 'FAILED: remove deletes the configuration'; exit 1; }
kill "$connection"
dpkg -P crosslane
state > /try/after
diff /try/before /try/after || { echo 'FAILED: purge leaves what diff shows'; exit 1; }
touch /try/passed
