"""Executes the commands of every guide, and compares the output that it shows: `make e2e-guides`.

Each page, or series of pages, has a separate world: a vehicle with six interfaces, a server that is a gateway,
and two roadside units, each in a network namespace with a separate /etc/crosslane. Runs in separate mount, network
and process namespaces (`e2e/guides.sh`), so that nothing remains.

The line before a block may say how it is executed:
- `<!-- slow: REASON -->`: by `make e2e-guides SLOW=yes` only
- `<!-- with NEW for OLD: REASON -->`: with another part of a command; also `slow, with NEW for OLD and NEW for OLD`
- `<!-- in any order: REASON -->`: the words of its output are compared in any order
- `<!-- not run: REASON -->`: it is not
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from guide_page import COMMANDS, Block, Step, blocks, differences, masked

ROOT = Path(__file__).parents[2]
PROGRAMS = [ROOT / "target/release", ROOT / ".venv/bin"]
INTERFACES = ("wlan0", "wwan0", "eth1", "lte-a", "lte-b", "its-g5")
"""Of the vehicle. Routes over the first ones are preferred."""
HOSTS = ("vehicle", "gateway", "rsu1", "rsu2")
ALIASES = {"server": "gateway"}
GATEWAY_ADDRESSES = ("198.51.100.1", "10.90.0.1")
"""What the guides call the gateway on the Internet and on the backhaul."""
RATE = "8mbit"
"""Of the vehicle's uplinks lte-a and lte-b; the others have none."""
SLOW = "SLOW" in os.environ
"""Whether blocks that take minutes are executed, too."""
LONGEST_S = 1800.0 if SLOW else 60.0

SETTLED_S = 15.0
"""Longest time until a status is as shown: a tunnel's path may have to recover on a busy machine."""
RSYNC = shutil.which("rsync")
"""A program of others that a guide runs; its command is left out where it is not installed."""
TOKEN = "5b3a0c11"
"""Of the connection that the guides explain."""

SERIES: dict[str, tuple[list[str], str]] = {
    "first-drive": (
        ["guide/first-drive.md", "guide/extending.md", "guide/learning.md", "guide/real-data.md"],
        "vehicle",
    ),
    "vehicle": (["guide/vehicle.md", "guide/running-agent.md"], "vehicle"),
    "readme": (["../README.md"], "vehicle"),
    "tunnel": (["guide/tunnel.md"], "vehicle"),
    "transfer": (["guide/transfer.md", "guide/coupled.md"], "vehicle"),
    "roadside": (["guide/roadside.md"], "vehicle"),
}
"""Pages that are executed one after another, and the host of commands without one."""
LASTING = ("agent", "watch", "receive", "view", "controller --config", "controller --")
"""Commands of the program that last until Ctrl-C: they run until the series ends."""


class World:
    """The hosts of a series, and what runs there."""

    def __init__(self, folder: Path, default: str) -> None:
        self.folder = folder
        self.default = default
        self.lasting: list[tuple[Step, subprocess.Popen[str]]] = []
        self.keys: dict[str, str] = {}
        self.sent: list[subprocess.Popen[str]] = []
        self.servers: list[subprocess.Popen[str]] = []
        for host in HOSTS:
            (folder / host).mkdir()
            run("ip", "netns", "add", host)
            self.inside(host, "ip link set lo up; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.ip_forward=1")
        for number, name in enumerate(INTERFACES, start=1):
            run(
                "ip",
                "link",
                "add",
                name,
                "netns",
                "vehicle",
                "type",
                "veth",
                "peer",
                f"to-{name}",
                "netns",
                "gateway",
            )
            self.inside("gateway", f"ip address add 10.1.{number}.1/24 dev to-{name}; ip link set to-{name} up")
            self.inside("vehicle", f"ip address add 10.1.{number}.2/24 dev {name}; ip link set {name} up")
            self.inside("vehicle", f"ip route add default via 10.1.{number}.1 metric {100 + number}")
        for name in ("lte-a", "lte-b"):
            self.inside("vehicle", f"tc qdisc add dev {name} root tbf rate {RATE} burst 16kb latency 100ms")
        for address in GATEWAY_ADDRESSES:
            self.inside("gateway", f"ip address add {address}/32 dev lo")
        self.inside("vehicle", "sysctl -qw net.mptcp.pm_type=1")
        self.inside("gateway", "crosslane mptcp limits set --subflows 8 --add-addr-accepted 8")
        self.prepare_files()

    def prepare_files(self) -> None:
        """What the commands name: scenarios, a file to send, a recorded run, a configuration of a vehicle."""
        work = self.folder / "work"
        work.mkdir()
        for name in ("scenarios", "target"):
            (work / name).symlink_to(ROOT / name)
        (work / "drive.mcap").write_bytes(os.urandom(5_000_000))
        for name in ("events.log", "drive/a.mcap", "drive/b.mcap", "logs/today.log"):
            (work / name).parent.mkdir(exist_ok=True)
            (work / name).write_text(f"{name}\n")
        pings = "".join(f"{tenth / 5:.1f},NAME,{40 + tenth % 7},,\n" for tenth in range(50))
        (work / "MINE.csv").write_text(f"t_s,operator,rtt_ms,lost,rssi_dbm\n{pings}")
        first = next(block for block in blocks(ROOT / "docs/guide/vehicle.md") if block.language == "toml")
        self.write("vehicle", "/etc/crosslane/agent.toml", first.text)

    def record_run(self) -> None:
        """The run folder that a guide shows."""
        recorded = "crosslane simulate scenarios/pass-by.toml --strategy threshold --seed 1 --out runs/pass-by"
        self.inside("vehicle", recorded)

    def serve_files(self) -> None:
        """A server of rsync at the gateway."""
        (self.folder / "depot").mkdir()
        module = f"use chroot = no\n[logs]\npath = {self.folder}/depot\nread only = no\nuid = 0\ngid = 0\n"
        (self.folder / "rsyncd.conf").write_text(module)
        daemon = f"exec rsync --daemon --no-detach --config={self.folder}/rsyncd.conf"
        self.servers.append(self.start("gateway", daemon))
        until(lambda: self.start("vehicle", "rsync depot::", capture=True).wait() == 0, "the server of rsync")

    def inside(self, host: str, command: str) -> str:
        """Run a command to its end; its standard output."""
        done = self.start(host, command, capture=True)
        try:
            output, _ = done.communicate(timeout=LONGEST_S)
        except subprocess.TimeoutExpired:
            done.kill()
            pytest.fail(f"{command}: not finished after {LONGEST_S} s")
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{output}"
        return output

    def start(self, host: str, command: str, capture: bool = False) -> subprocess.Popen[str]:
        """Start a command in a host, with the /etc/crosslane of that."""
        mount = f'mount --bind {self.folder / host} /etc/crosslane; exec sh -c "$0"'
        arguments = ["ip", "netns", "exec", host, "unshare", "--mount", "sh", "-c", mount, command]
        output = subprocess.PIPE if capture else (self.folder / f"output-{len(self.lasting)}").open("w")
        work = self.folder / "work"
        where = ROOT if command.split()[0] == "make" else work if work.exists() else self.folder
        path = os.pathsep.join([*map(str, PROGRAMS), os.environ["PATH"]])
        return subprocess.Popen(
            arguments,
            cwd=where,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def write(self, host: str, path: str, lines: list[str]) -> None:
        """Write a file of a guide, with the keys that were made."""
        text = self.with_keys("\n".join(lines) + "\n")
        (self.folder / host / Path(path).name).write_text(text, encoding="utf-8")

    def with_keys(self, text: str) -> str:
        """A text with the keys that were made, in place of those that the guides show or name."""
        for shown, key in self.keys.items():
            text = text.replace(shown, key)
        return text

    def execute(self, step: Step, page: str, in_order: bool = True) -> None:
        """Execute a command as a reader would, and compare its output."""
        host = ALIASES.get(step.host or self.default, step.host or self.default)
        place = f"{page}:{step.line}"
        if is_lasting(step.command):
            process = self.start(host, f"exec {self.with_keys(step.command)}")
            self.lasting.append((step, process))
            if step.command.split()[1] == "agent":
                until(lambda: self.start(host, "crosslane status", capture=True).wait() == 0, place)
                self.use(host)
            else:
                time.sleep(0.5)
            output = (self.folder / f"output-{len(self.lasting) - 1}").read_text(encoding="utf-8")
            assert process.poll() is None, f"{place}: {step.command}: it ended: {output}"
            return
        if "rsync" in step.command and not RSYNC:
            print(f"NOT RUN: {step.command}: apt-get install rsync")
            return
        token = self.token(host, step.command)
        output = self.inside(host, self.with_keys(step.command.replace(TOKEN, token)))
        if "keygen --out" in step.command:
            name = Path(step.command.split()[-1]).stem
            named = [f"PUBLIC KEY OF {the}{one.upper()}" for one in (name, host) for the in ("THE ", "")]
            self.keys |= dict.fromkeys([*named, *step.expected], output.strip())
        expected = [self.with_keys(line.replace(TOKEN, token)) for line in step.expected]
        end = time.monotonic() + SETTLED_S
        while (wrong := differences(expected, output, in_order)) and "status" in step.command:
            if time.monotonic() > end:
                break
            time.sleep(0.5)
            output = self.inside(host, step.command)
        assert not wrong, f"{place}: {step.command} does not print\n" + "\n".join(wrong) + f"\nbut\n{output}"

    def token(self, host: str, command: str) -> str:
        """The token of a connection in place of the one in the guides."""
        if TOKEN not in command:
            return TOKEN
        return json.loads(self.inside(host, "crosslane connections --json"))[0]["token"]

    def use(self, host: str) -> None:
        """Let a vehicle have two connections that carry something, and receive a roadside unit."""
        if host == "vehicle" and not self.sent:
            self.sent = [self.start("gateway", f"{sys.executable} {__file__} serve")]
            self.sent.append(self.start("vehicle", f"{sys.executable} {__file__} connect"))
            until(lambda: len(self.subflows()) == 2, "the connections")
            self.sent.append(self.start("vehicle", f"{sys.executable} {__file__} cams"))
            until(lambda: self.subflows() == [2, 2], "a subflow over each path")
            time.sleep(0.5)

    def subflows(self) -> list[int]:
        """The number of subflows of each connection of the vehicle."""
        connections = json.loads(self.inside("vehicle", "crosslane connections --json"))
        return [len(connection["subflows"]) for connection in connections]

    def end(self) -> list[str]:
        """End what lasts, as Ctrl-C does; what did not end well."""
        wrong: list[str] = []
        for number, (step, process) in enumerate(self.lasting):
            is_alive = process.poll() is None
            process.send_signal(signal.SIGINT)
            try:
                code = process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                code = None
            output = (self.folder / f"output-{number}").read_text(encoding="utf-8")
            if not is_alive or code not in (0, 130, -signal.SIGINT):
                wrong.append(f"{step.command}: exit code {code}: {output[-2000:]}")
        for process in (*self.sent, *self.servers, *(process for _, process in self.lasting)):
            process.kill()
            process.wait()
        for host in HOSTS:
            subprocess.run(["ip", "netns", "delete", host], check=False)
        return wrong


def run(*arguments: str) -> None:
    """Run a program that must succeed."""
    subprocess.run(arguments, check=True)


def until(is_done: Callable[[], bool], what: str) -> None:
    """Wait for something, as long as a command may take."""
    end = time.monotonic() + LONGEST_S
    while not is_done():
        assert time.monotonic() < end, f"{what}: not within {LONGEST_S} s"
        time.sleep(0.1)


def is_lasting(command: str) -> bool:
    """Whether it lasts until Ctrl-C."""
    return any(command.removeprefix("crosslane ").startswith(one) for one in LASTING) and command.startswith(
        "crosslane "
    )


def pages() -> set[str]:
    """The guides, and the README."""
    return {"../README.md"} | {f"guide/{page.name}" for page in (ROOT / "docs/guide").glob("*.md")}


def is_run(block: Block, slow: bool = SLOW) -> bool:
    """Whether the block has commands that are to be executed."""
    return block.language in COMMANDS and block.not_run is None and (slow or not block.is_slow)


def test_every_guide_is_in_a_series() -> None:
    assert {page for series, _ in SERIES.values() for page in series} == pages()


def test_most_commands_are_executed() -> None:
    every = [block for page in pages() for block in blocks(ROOT / "docs" / page) if block.language in COMMANDS]
    steps = [step for block in every if is_run(block, slow=False) for step in block.steps]
    slow = [step for block in every if is_run(block, slow=True) and block.is_slow for step in block.steps]
    left_out = [step for block in every if not is_run(block, slow=True) for step in block.steps]
    shown = sum(bool(step.expected) for step in steps)
    print(f"{len(steps)} commands are executed, {len(slow)} more with SLOW=yes, {len(left_out)} are not")
    print(f"{shown} have an output")
    assert len(steps) > 2 * len(left_out)
    assert all(block.not_run is None or block.language in COMMANDS for block in every)


def test_another_output_is_a_difference() -> None:
    shown = ["path  state   sent", "lte   active  1.2 MB"]
    assert differences(shown, "x\npath state sent\nlte  active  17 B\n") == []
    assert differences(shown, "path state sent\nlte  backup  17 B\n") == shown[1:]
    assert differences(shown, "lte  active  17 B\npath state sent\n") == shown[1:]
    assert differences(shown, "lte  active  17 B\npath state sent\n", in_order=False) == []
    assert differences(shown, "lte  backup  17 B\npath state sent\n", in_order=False) == shown[1:]
    assert (
        masked("up 2 h 5 min, -61.2 dBm for 150 ms") == masked("up 4.0 s, -70 dBm for 1 s") == "up T, N dBm for T"
    )
    assert masked("its-g5 -") == "its-g5 N"


def test_prompts_outputs_and_marks_are_read(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "On the gateway, `/etc/crosslane/agent.toml`:\n```toml\na = 1\n```\n"
        "x\n<!-- not run: long -->\n```\nmake\n```\n"
        "<!-- slow, with -n 1 for -n 40 and 2 for 3: minutes -->\n```\na -n 40 3 40\n```\n"
        "<!-- in any order: by chance -->\n```\n$ b\n1\n```\n"
        "```\ngateway# crosslane status    # shows it\nagent 1\n```\n```\na\n\nb # c\n```\n"
    )
    file, long, slow, chance, shown, plain = blocks(page)
    assert (file.file, file.language) == (("gateway", "/etc/crosslane/agent.toml"), "toml")
    assert (long.not_run, is_run(long), is_run(shown)) == ("long", False, True)
    assert (slow.is_slow, is_run(slow, slow=False), is_run(slow, slow=True)) == (True, False, True)
    assert [step.command for step in slow.steps] == ["a -n 1 2 40"]
    assert (chance.in_order, slow.in_order, chance.is_slow) == (False, True, False)
    assert shown.steps == [Step("gateway", "crosslane status", 20, ["agent 1"])]
    assert [step.command for step in plain.steps] == ["a", "b"]


@pytest.mark.parametrize("name", SERIES)
def test_the_commands_work_and_print_what_the_guide_shows(name: str, tmp_path: Path) -> None:
    series, default = SERIES[name]
    world = World(tmp_path, default)
    try:
        if "guide/running-agent.md" in series:
            world.record_run()
        if "guide/vehicle.md" in series and RSYNC:
            world.serve_files()
        for page in series:
            for block in blocks(ROOT / "docs" / page):
                if block.language == "toml" and block.file:
                    host, path = block.file
                    world.write("rsu1" if host == "unit" else host or default, path, block.text)
                for step in block.steps if is_run(block) else ():
                    world.execute(step, page, block.in_order)
    finally:
        wrong = world.end()
    assert not wrong, "\n".join(wrong)


def serve() -> None:
    """Echo what arrives over two MPTCP connections."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
    listener.bind((GATEWAY_ADDRESSES[0], 443))
    listener.listen()
    peers = [listener.accept()[0] for _ in range(2)]
    while True:
        for peer in peers:
            peer.sendall(peer.recv(100))


def connect() -> None:
    """Send something over two MPTCP connections, ten times a second."""
    peers = [connection() for _ in range(2)]
    while True:
        for peer in peers:
            peer.sendall(b"x")
            peer.recv(100)
        time.sleep(0.1)


def connection() -> socket.socket:
    """A connection to the server as soon as that listens."""
    while True:
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
        try:
            peer.connect((GATEWAY_ADDRESSES[0], 443))
            return peer
        except ConnectionRefusedError:
            peer.close()
            time.sleep(0.1)


def cams() -> None:
    """Send the CAMs that an on-board unit receives of a roadside unit."""
    unit = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    message = {"rssi": -61.2, "stationID": 1001, "fields": {"header": {"stationID": 1001}}}
    while True:
        unit.sendto(json.dumps(message).encode(), ("127.0.0.1", 5051))
        time.sleep(0.05)


if __name__ == "__main__":
    {"serve": serve, "connect": connect, "cams": cams}[sys.argv[1]]()
