"""The page of an agent in Chromium, also while it restarts, and its metrics as Prometheus reads them.

Part of `make e2e-guides`, in the same namespaces. Without Chromium only the metrics are read. A picture of the page
is in `runs/e2e/page.png` afterwards.
"""

import base64
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from guides import ROOT, World, until
from prometheus_client.openmetrics.parser import text_string_to_metric_families

ADDRESS = "http://127.0.0.1:9470"
AGENT = "exec crosslane agent --config /etc/crosslane/agent.toml"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1280,1400"
PORT = 9222
"""Of Chromium's DevTools protocol."""
LONGEST_S = 60.0
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing (apt-get install chromium)")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A vehicle whose agent serves a page, with two connections."""
    made = World(tmp_path, "vehicle")
    file = tmp_path / "vehicle/agent.toml"
    file.write_text(file.read_text(encoding="utf-8") + f'[http]\nlisten = "{ADDRESS.removeprefix("http://")}"\n')
    yield made
    made.end()


def started(world: World) -> subprocess.Popen[str]:
    """An agent that answers, with connections."""
    agent = world.start("vehicle", AGENT)
    until(lambda: world.start("vehicle", "crosslane status", capture=True).wait() == 0, "the agent starts")
    world.use("vehicle")
    return agent


def test_prometheus_reads_the_metrics(world: World) -> None:
    agent = started(world)
    text = world.inside("vehicle", f"{sys.executable} {__file__} get {ADDRESS}/metrics")
    families = list(text_string_to_metric_families(text))
    listed = (ROOT / "docs/reference/agent-metrics.md").read_text(encoding="utf-8")
    names = {name.removesuffix("_total") for name in re.findall(r"^\| `(crosslane_\w+)`", listed, re.MULTILINE)}
    assert {family.name for family in families} == names
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels["path"] for sample in samples if "path" in sample.labels} == {"its-g5", "lte"}
    assert [sample.value for sample in samples if sample.name == "crosslane_connections"] == [2.0]
    agent.kill()


@needs_chromium
def test_the_page_says_what_the_agent_does_and_when_it_is_lost(world: World) -> None:
    agent = started(world)
    options = f"{OPTIONS} --user-data-dir={world.folder}/profile --remote-debugging-port={PORT}"
    chromium = world.start("vehicle", f"exec {CHROMIUM} {options} {ADDRESS}/")
    try:
        shown = text_when(world, "198.51.100.1:443")
        for expected in ("its-g5", "lte", "active", "backup", "becomes active", "adaptive"):
            assert expected in shown, shown
        assert "lost since" not in shown
        (ROOT / "runs/e2e").mkdir(parents=True, exist_ok=True)
        look(world, f"picture {ROOT / 'runs/e2e/page.png'}")
        agent.send_signal(signal.SIGKILL)
        agent.wait()
        text_when(world, "agent lost since")
        agent = started(world)
        number = json.loads(world.inside("vehicle", "crosslane status --json"))["pid"]
        # The page takes the agent for lost until it has the connections, too.
        text_when(world, f"{number}", without="lost since")
    finally:
        chromium.kill()
        agent.kill()


def text_when(world: World, expected: str, without: str | None = None) -> str:
    """The text that the page shows as soon as the one is part of it and the other is not."""
    shown = ""
    end = time.monotonic() + LONGEST_S
    while expected not in shown or (without is not None and without in shown):
        assert time.monotonic() < end, f"no {expected!r}, or {without!r}, in {shown}"
        shown = look(world, "text")
    return shown


def look(world: World, how: str) -> str:
    """What Chromium shows; empty while it does not answer."""
    asked = world.start("vehicle", f"{sys.executable} {__file__} {how}", capture=True)
    text = asked.communicate(timeout=LONGEST_S)[0]
    return text if asked.returncode == 0 else ""


class DevTools:
    """A connection to the page by Chromium's DevTools protocol, over a WebSocket (RFC 6455)."""

    def __init__(self) -> None:
        with urlopen(f"http://127.0.0.1:{PORT}/json", timeout=5) as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        path = pages[0]["webSocketDebuggerUrl"].split(str(PORT), 1)[1]
        self.stream = socket.create_connection(("127.0.0.1", PORT), timeout=20)
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        self.stream.sendall(f"{head}Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.file = self.stream.makefile("rb")
        while self.file.readline().strip():
            pass

    def request(self, method: str, **parameters: object) -> dict[str, object]:
        """The result of a request; events are passed over."""
        payload = json.dumps({"id": 1, "method": method, "params": parameters}).encode()
        # A text frame, masked with zeros.
        self.stream.sendall(b"\x81\xfe" + struct.pack(">H", len(payload)) + bytes(4) + payload)
        while True:
            length = self.file.read(2)[1] & 0x7F
            if length > 125:
                size = 2 if length == 126 else 8
                length = int.from_bytes(self.file.read(size), "big")
            answer = json.loads(self.file.read(length))
            if answer.get("id") == 1:
                return answer["result"]


def main(how: str, *arguments: str) -> None:
    """What the tests run in the vehicle's namespace."""
    if how == "get":
        with urlopen(arguments[0], timeout=5) as answer:
            print(answer.read().decode(), end="")
    elif how == "text":
        result = DevTools().request("Runtime.evaluate", expression="document.body.innerText")["result"]
        assert isinstance(result, dict)
        print(result["value"])
    else:
        data = DevTools().request("Page.captureScreenshot", format="png")["data"]
        assert isinstance(data, str)
        Path(arguments[0]).write_bytes(base64.b64decode(data))


if __name__ == "__main__":
    main(*sys.argv[1:])
