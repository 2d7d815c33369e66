"""Redirects through a real Open vSwitch with its userspace datapath: `make e2e-openflow`.

Runs in separate network and process namespaces (`e2e/openflow.sh`), so that nothing remains. The ports of the
switch are veth pairs. The test sends Ethernet frames at one end, and reads when the others received them.
"""

import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HOME = "10.99.0.7"
MACS = {"rsu1": "02:00:00:00:00:01", "rsu2": "02:00:00:00:00:02"}
LISTEN = "127.0.0.1:6653"
CLOSED = "127.0.0.1:6654"
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
SO_TIMESTAMPNS = 35
"""Of asm-generic/socket.h; Python has no name for it."""
PERIOD_S = 0.010
REDIRECTS = 40


class Switch:
    """Open vSwitch in a separate folder, with bridge br0 and the ports p-server, p-rsu1 and p-rsu2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = f"unix:{folder}/db.sock"
        self.environment = os.environ | {key: str(folder) for key in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")}
        self.run("ovsdb-tool", "create", f"{folder}/conf.db", str(SCHEMA))
        self.server = self.start("ovsdb-server", f"{folder}/conf.db", f"--remote=p{self.database}")
        until(lambda: (folder / "db.sock").exists())
        self.vsctl("--no-wait", "init")
        self.daemon = self.start("ovs-vswitchd", self.database, "--disable-system")
        ports = [word for port in ("p-server", "p-rsu1", "p-rsu2") for word in ("--", "add-port", "br0", port)]
        kind = ("--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure")
        self.vsctl("add-br", "br0", *kind, *ports)

    def connect(self, address: str = LISTEN) -> None:
        """Connect to another controller; without one at all, Open vSwitch would remove all flows."""
        options = ("max_backoff=1000", "connection_mode=out-of-band")
        self.vsctl("set-controller", "br0", f"tcp:{address}", "--", "set", "controller", "br0", *options)

    def restart(self) -> None:
        """Kill the switch, which loses all flows, and start it again."""
        self.daemon.kill()
        self.daemon.wait()
        (self.folder / "br0.mgmt").unlink()
        self.daemon = self.start("ovs-vswitchd", self.database, "--disable-system")

    def flows(self) -> str:
        return self.run("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", f"unix:{self.folder}/br0.mgmt")

    def vsctl(self, *arguments: str) -> None:
        self.run("ovs-vsctl", f"--db={self.database}", "--timeout=10", *arguments)

    def start(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        log = self.folder / f"{program}.log"
        command = [program, *arguments, f"--log-file={log}", "-vconsole:off"]
        return subprocess.Popen(command, env=self.environment)

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def stop(self) -> None:
        for process in (self.daemon, self.server):
            process.terminate()
            process.wait()


class Client:
    """The roadside controller's end of the Unix socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(5)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")
        self.id = 0

    def lead(self, unit: str | None, home: str = f"{HOME}/32") -> dict[str, object]:
        self.id += 1
        request = {"id": self.id, "home": home, "unit": unit, "next_hop": "10.81.0.11"}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.lines.readline())
        assert answer.pop("id") == self.id
        return answer


class Receiver:
    """The datagrams to the home address that one end receives, by number: time of arrival (ns) and MAC address."""

    def __init__(self, interface: str) -> None:
        self.received: dict[int, tuple[int, str]] = {}
        self.duplicates = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind((interface, 0x0800))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            frame, ancillary, _, _ = self._socket.recvmsg(2048, 64)
            if frame[30:34] != socket.inet_aton(HOME):
                continue
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2][:16])
            (number,) = struct.unpack("!I", frame[42:46])
            self.duplicates += number in self.received
            self.received[number] = (seconds * 1_000_000_000 + nanoseconds, frame[:6].hex(":"))


class Sender:
    """A datagram each 10 ms to the home address, from the server's end."""

    def __init__(self) -> None:
        self.sent = 0
        self._stopped = threading.Event()
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self._socket.bind(("server", 0))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopped.wait(max(0, due - time.monotonic())):
            self._socket.send(frame(self.sent))
            self.sent += 1
            due += PERIOD_S


def frame(number: int) -> bytes:
    """A datagram in an Ethernet frame, to a MAC address that no port has."""
    datagram = struct.pack("!HHHHI", 4000, 4000, 12, 0, number)
    ends = socket.inet_aton("10.98.0.1") + socket.inet_aton(HOME)
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), 0, 0, 64, 17, 0) + ends
    total = sum(struct.unpack("!10H", header))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    header = header[:10] + struct.pack("!H", checksum) + header[12:]
    return bytes.fromhex("0200000000fe0200000000aa0800") + header + datagram


def until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited for {timeout_s:g} s"
        time.sleep(0.02)


@contextmanager
def controller(folder: Path, *, answers: bool = True) -> Iterator[Client]:
    """The process under test, and a connection to it; with `answers`, once the switch is connected to it."""
    config, path = folder / "ports.toml", folder / "redirect.sock"
    tables = [f'[[port]]\nunit = "{unit}"\nport = "p-{unit}"\nmac = "{mac}"\n' for unit, mac in MACS.items()]
    config.write_text("\n".join([*tables, '[[port]]\nunit = "gone"\nport = "p-gone"\nmac = "02:00:00:00:00:09"\n']))
    command = [sys.executable, "-m", "crosslane_lab", "openflow", "--listen", LISTEN]
    process = subprocess.Popen([*command, "--socket", str(path), "--config", str(config)])
    try:
        until(path.exists)
        client = Client(path)
        if answers:
            until(lambda: client.lead("rsu1") == {"done": True})
        yield client
    finally:
        process.terminate()
        assert process.wait(10) == 0
        assert not path.exists()


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switch]:
    ip = ["ip", "link"]
    subprocess.run([*ip, "set", "lo", "up"], check=True)
    for end in ("server", *MACS):
        subprocess.run([*ip, "add", end, "type", "veth", "peer", "name", f"p-{end}"], check=True)
        for interface in (end, f"p-{end}"):
            subprocess.run([*ip, "set", interface, "up"], check=True)
    switch = Switch(tmp_path_factory.mktemp("ovs"))
    switch.connect()
    yield switch
    switch.stop()


def lead(client: Client, _: Path) -> list[tuple[int, int, str]]:
    """Redirects by requests of the test: begin and end (ns), unit."""
    decided: list[tuple[int, int, str]] = []
    for number in range(REDIRECTS):
        time.sleep(0.25 + 0.0037 * (number % 3))
        unit = ("rsu2", "rsu1")[number % 2]
        begin = time.time_ns()
        assert client.lead(unit) == {"done": True}
        decided.append((begin, time.time_ns(), unit))
    return decided


def run_controller(_: Client, path: Path) -> list[tuple[int, int, str]]:
    """The same by `crosslane controller`, to which two units report (crates/crosslane/tests/controller.rs)."""
    test = ["--test", "main", "--", "--ignored", "--nocapture", "through_a_switch"]
    command = ["cargo", "test", "--release", "--locked", "--quiet", "-p", "crosslane", *test]
    environment = os.environ | {"CROSSLANE_OPENFLOW_SOCKET": str(path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("redirect ")]
    return [(int(begin), int(end), unit) for _, begin, end, unit in lines]


@pytest.mark.parametrize("redirect", [lead, run_controller])
def test_a_redirect_loses_nothing_and_the_old_way_is_silent_within_50_ms(
    switch: Switch, tmp_path: Path, redirect: Callable[[Client, Path], list[tuple[int, int, str]]]
) -> None:
    ways = {unit: Receiver(unit) for unit in MACS}
    with controller(tmp_path) as client:
        sender = Sender()
        decided = redirect(client, tmp_path / "redirect.sock")
        time.sleep(0.3)
        sender.stop()
        time.sleep(0.3)
    assert len(decided) == REDIRECTS
    carried, confirmed = [], []
    for number, (begin, done, unit) in enumerate(decided):
        end = decided[number + 1][0] if number + 1 < len(decided) else done + 10**9
        old = ways["rsu1" if unit == "rsu2" else "rsu2"].received.values()
        late = [at for at, _ in old if begin <= at < end]
        carried.append((max(late, default=begin) - begin) / 1e6)
        confirmed.append((done - begin) / 1e6)
    lost = set(range(sender.sent)) - set(ways["rsu1"].received) - set(ways["rsu2"].received)
    twice = set(ways["rsu1"].received) & set(ways["rsu2"].received)
    print(
        f"\n{len(decided)} redirects, {sender.sent} datagrams: the old way carried for at most {max(carried):.1f} "
        f"ms (median {statistics.median(carried):.1f}); confirmed within {max(confirmed):.1f} ms "
        f"(median {statistics.median(confirmed):.1f}); {len(lost)} lost, {len(twice)} twice"
    )
    for unit, way in ways.items():
        assert {mac for _, mac in way.received.values()} == {MACS[unit]}
        assert len(way.received) > sender.sent / 3
        assert way.duplicates == 0
    assert lost == set()
    assert twice == set()
    assert max(carried) <= 50


def test_a_switch_that_starts_again_gets_all_flows_again(switch: Switch, tmp_path: Path) -> None:
    with controller(tmp_path) as client:
        assert client.lead("rsu2") == {"done": True}
        assert client.lead("rsu1", "10.99.0.8/32") == {"done": True}
        switch.restart()
        until(lambda: (switch.folder / "br0.mgmt").exists())
        until(lambda: flow(switch, HOME) and flow(switch, "10.99.0.8") and "NORMAL" in switch.flows())
        assert MACS["rsu2"] in flow(switch, HOME)


def test_a_withdrawal_while_the_switch_is_away_is_made_good(switch: Switch, tmp_path: Path) -> None:
    with controller(tmp_path) as client:
        switch.connect(CLOSED)
        until(lambda: "no switch" in str(client.lead(None).get("error")))
        assert flow(switch, HOME)
        switch.connect()
        until(lambda: not flow(switch, HOME))
        assert client.lead("rsu1") == {"done": True}


def test_what_the_switch_cannot_do_is_one_sentence_and_the_old_way_stays(switch: Switch, tmp_path: Path) -> None:
    with controller(tmp_path) as client:
        before = flow(switch, HOME)
        missing = 'the switch has no port "p-gone"; it gets the flow when the port is added'
        assert client.lead("gone") == {"error": missing}
        unknown = 'unit "rsu9" has no port in the configuration; add a table [[port]]'
        assert client.lead("rsu9") == {"error": unknown}
        assert before.split("actions=")[1] == flow(switch, HOME).split("actions=")[1]
        subprocess.run(["ip", "link", "add", "gone", "type", "veth", "peer", "name", "p-gone"], check=True)
        switch.vsctl("add-port", "br0", "p-gone")
        until(lambda: "02:00:00:00:00:09" in flow(switch, HOME))


def test_a_switch_that_hangs_up_is_one_sentence(switch: Switch, tmp_path: Path) -> None:
    with controller(tmp_path) as client:
        os.kill(switch.daemon.pid, signal.SIGSTOP)
        try:
            answer = client.lead("rsu2")
        finally:
            os.kill(switch.daemon.pid, signal.SIGCONT)
        assert answer == {"error": "the switch hung up; it gets the flow when it connects again"}
        until(lambda: MACS["rsu2"] in flow(switch, HOME))


def test_flows_stay_when_the_controller_ends(switch: Switch, tmp_path: Path) -> None:
    with controller(tmp_path) as client:
        assert client.lead("rsu2") == {"done": True}
    time.sleep(0.5)
    assert MACS["rsu2"] in flow(switch, HOME)


def flow(switch: Switch, home: str) -> str:
    """The line of the switch's table for a home address; empty without one."""
    lines = [line for line in switch.flows().splitlines() if f"nw_dst={home} " in line]
    assert len(lines) <= 1
    return lines[0] if lines else ""
