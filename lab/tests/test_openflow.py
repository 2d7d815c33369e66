import asyncio
import json
import socket
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from crosslane_lab.errors import LabError
from crosslane_lab.openflow import controller, ports
from crosslane_lab.openflow.command import _address, _clear, _client
from crosslane_lab.openflow.controller import Controller
from crosslane_lab.openflow.messages import Messages
from crosslane_lab.openflow.ports import Port
from crosslane_lab.openflow.requests import RequestError, answer, parse

RSU1 = '[[port]]\nunit = "rsu1"\nport = "p-rsu1"\nmac = "02:00:00:00:00:0A"\n'


def lines(controller: Controller, path: Path, *sent: bytes) -> list[dict[str, object]]:
    """What a connection to this controller answers to these lines, until it ends."""

    async def run() -> list[dict[str, object]]:
        server = await asyncio.start_unix_server(partial(_client, controller), path, limit=4096)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.writelines(sent)
        writer.write_eof()
        answers = [json.loads(line) async for line in reader]
        writer.close()
        server.close()
        return answers

    return asyncio.run(run())


def without_switch() -> Controller:
    """A controller that knows one unit, and has no switch, so that it builds no message."""
    return Controller(cast(Messages, None), {"rsu1": Port("p-rsu1", "02:00:00:00:00:0a")}, print)


def test_each_table_is_the_port_of_a_unit(tmp_path: Path) -> None:
    (tmp_path / "ports.toml").write_text(RSU1)
    assert ports.read(tmp_path / "ports.toml") == {"rsu1": Port("p-rsu1", "02:00:00:00:00:0a")}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[[port", "write one table [[port]] for each unit"),
        ("unit = 1", "it must hold tables [[port]] and nothing else"),
        (RSU1 + RSU1, 'unit "rsu1" has two ports; remove one'),
        (RSU1.replace("mac", "max"), "[[port]] number 1: needs the keys unit, port and mac"),
        (RSU1.replace('"p-rsu1"', "7"), "[[port]] number 1: needs the keys unit, port and mac"),
        (RSU1.replace('"02:', '"03:'), 'mac "03:00:00:00:00:0a" is no unicast MAC address'),
        (RSU1.replace(":0A", ""), 'mac "02:00:00:00:00" is no unicast MAC address'),
    ],
)
def test_a_wrong_configuration_is_one_sentence(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "ports.toml"
    path.write_text(text)
    with pytest.raises(LabError) as raised:
        ports.read(path)
    assert str(path) in str(raised.value)
    assert cause in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_request_leads_a_home_address_or_withdraws_it() -> None:
    line = b'{"id":17,"home":"10.99.0.7/32","unit":"rsu1","next_hop":"10.81.0.11"}\n'
    request = parse(line)
    assert (request.id, str(request.home), request.unit) == (17, "10.99.0.7", "rsu1")
    assert parse(line.replace(b'"rsu1"', b"null")).unit is None


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"lead", "the request is no JSON object on one line; send one"),
        (b"\xff{}", "the request is no JSON object on one line; send one"),
        (b"[" * 4000, "the request is no JSON object on one line; send one"),
        (b"{}", 'the request has no "id"; send a number'),
        (b'{"id":true}', 'the request has no "id"; send a number'),
        (b'{"id":1,"home":"10.99.0.7/32"}', 'the request has no "unit"; send its name, or null to withdraw'),
        (b'{"id":1,"unit":"rsu1"}', 'home null is no IPv4 address as "10.99.0.7/32"; correct it'),
        (b'{"id":1,"unit":null,"home":"10.99.0.0/24"}', 'home "10.99.0.0/24" is no IPv4 address'),
        (b'{"id":1,"unit":null,"home":"fd00::7/32"}', 'home "fd00::7/32" is no IPv4 address'),
    ],
)
def test_a_wrong_request_is_one_sentence(line: bytes, sentence: str) -> None:
    with pytest.raises(RequestError) as raised:
        parse(line)
    assert sentence in str(raised.value)


def test_an_answer_is_done_or_an_error() -> None:
    assert answer(17) == b'{"id":17,"done":true}\n'
    assert answer(None, "why") == b'{"id":null,"error":"why"}\n'


def test_each_line_is_answered_by_one_and_a_wrong_one_ends_nothing(tmp_path: Path) -> None:
    right = b'{"id":%d,"home":"10.99.0.7/32","unit":"%s"}\n'
    answers = lines(without_switch(), tmp_path / "socket", right % (1, b"rsu1"), b"lead\n", right % (2, b"rsu9"))
    assert answers == [
        {"id": 1, "error": "no switch is connected; it gets the flow when it connects"},
        {"id": None, "error": "the request is no JSON object on one line; send one"},
        {"id": 2, "error": 'unit "rsu9" has no port in the configuration; add a table [[port]]'},
    ]


def test_a_line_without_end_is_one_sentence_and_ends_the_connection(tmp_path: Path) -> None:
    answers = lines(without_switch(), tmp_path / "socket", b"x" * 100_000)
    assert answers == [{"id": None, "error": "a line has more than 4096 bytes; send one object a line"}]


def test_the_number_of_home_addresses_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MAX_HOMES", 2)
    one = without_switch()
    sentences = []
    for number in (1, 2, 3, 2):
        request = parse(b'{"id":1,"home":"10.99.0.%d/32","unit":"rsu1"}' % number)
        with pytest.raises(RequestError) as raised:
            one.begin(request)
        sentences.append(str(raised.value))
    assert ["no switch" in sentence for sentence in sentences] == [True, True, False, True]
    assert sentences[2] == "there are 2 home addresses, the most that are kept; withdraw some"


@pytest.mark.parametrize("listen", ["6653", ":6653", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "a:²"])
def test_a_wrong_address_is_one_sentence(listen: str) -> None:
    with pytest.raises(LabError, match=r"is no HOST:PORT; write one as 127\.0\.0\.1:6653"):
        _address(listen)


def test_an_ipv6_address_has_brackets() -> None:
    assert _address("[::1]:6653") == ("::1", 6653)


def test_only_a_socket_that_nothing_listens_on_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.write_text("")
    with pytest.raises(LabError, match="it is no socket; choose another path"):
        _clear(path)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        with pytest.raises(LabError, match="another process does; end it, or choose another path"):
            _clear(path)
    _clear(path)
    assert not path.exists()
