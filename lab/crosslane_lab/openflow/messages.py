"""The OpenFlow 1.3 messages that the controller sends, and the parser of what it receives, by os-ken (decision 55).

All flows of the controller have one cookie and one priority. A flow for a home address has the same match whatever
unit it leads to, so a new one replaces the old one at once (OpenFlow 1.3, section 6.4): no packet finds neither.
"""

from importlib import import_module
from ipaddress import IPv4Address
from types import SimpleNamespace
from typing import Any

from crosslane_lab.errors import LabError
from crosslane_lab.openflow.ports import Port

Message = Any
"""A message or a part of one: os-ken has no types."""

COOKIE = 0x43524F53534C414E
PRIORITY = 1000
HEADER_BYTES = 8


class Messages:
    """The messages, as bytes. Raises an error if os-ken is not installed."""

    def __init__(self) -> None:
        try:
            # Only its messages: importing its controller would start another scheduler of threads.
            self.of: Any = import_module("os_ken.ofproto.ofproto_v1_3")
            self._parser: Any = import_module("os_ken.ofproto.ofproto_v1_3_parser")
            self._receive: Any = import_module("os_ken.ofproto.ofproto_parser").msg
        except ModuleNotFoundError as error:
            raise LabError(
                f"while looking for os-ken: {error.name} is not installed; "
                "pip install --no-deps --require-hashes -r lab/requirements-openflow.lock"
            ) from error
        self._version = SimpleNamespace(ofproto=self.of, ofproto_parser=self._parser)

    def hello(self) -> bytes:
        """The first message of a connection: version 1.3 and no other."""
        versions = self._parser.OFPHelloElemVersionBitmap([self.of.OFP_VERSION])
        return self._bytes(self._parser.OFPHello(self._version, [versions]), 0)

    def features_request(self) -> bytes:
        """The question for the id of the switch."""
        return self._bytes(self._parser.OFPFeaturesRequest(self._version), 0)

    def ports_request(self) -> bytes:
        """The question for all ports and their names."""
        return self._bytes(self._parser.OFPPortDescStatsRequest(self._version, 0), 0)

    def barrier(self, xid: int) -> bytes:
        """Answered once all messages before it are carried out."""
        return self._bytes(self._parser.OFPBarrierRequest(self._version), xid)

    def echo_reply(self, request: Message) -> bytes:
        """The answer to an echo request of the switch."""
        return self._bytes(self._parser.OFPEchoReply(self._version, data=request.data), request.xid)

    def redirect(self, home: IPv4Address, port: Port, number: int, xid: int) -> bytes:
        """Lead `home` to a unit, over the port of this number: a new flow, or another way for the present one."""
        actions = [self._parser.OFPActionSetField(eth_dst=port.mac), self._parser.OFPActionOutput(number)]
        return self._flow(self.of.OFPFC_ADD, self._match(home), actions, PRIORITY, xid)

    def withdraw(self, home: IPv4Address, xid: int) -> bytes:
        """Remove the flow for `home`."""
        return self._flow(self.of.OFPFC_DELETE_STRICT, self._match(home), [], PRIORITY, xid)

    def others(self, xid: int) -> bytes:
        """What has no other flow is switched as by an ordinary bridge."""
        normal = [self._parser.OFPActionOutput(self.of.OFPP_NORMAL)]
        return self._flow(self.of.OFPFC_ADD, self._parser.OFPMatch(), normal, 0, xid)

    def received(self, header: bytes, body: bytes) -> Message:
        """A message of the switch; None if it is malformed."""
        version, kind, length, xid = self.header(header)
        return self._receive(self._version, version, kind, length, xid, header + body)

    def header(self, header: bytes) -> tuple[int, int, int, int]:
        """Version, type, length in bytes and transaction id of a message."""
        version, kind = header[0], header[1]
        return version, kind, int.from_bytes(header[2:4], "big"), int.from_bytes(header[4:8], "big")

    def _match(self, home: IPv4Address) -> Message:
        return self._parser.OFPMatch(eth_type=0x0800, ipv4_dst=str(home))

    def _flow(self, command: int, match: Message, actions: list[Message], priority: int, xid: int) -> bytes:
        apply = [self._parser.OFPInstructionActions(self.of.OFPIT_APPLY_ACTIONS, actions)] if actions else []
        flow = self._parser.OFPFlowMod(
            self._version,
            cookie=COOKIE,
            command=command,
            priority=priority,
            out_port=self.of.OFPP_ANY,
            out_group=self.of.OFPG_ANY,
            match=match,
            instructions=apply,
        )
        return self._bytes(flow, xid)

    def _bytes(self, message: Message, xid: int) -> bytes:
        message.set_xid(xid)
        message.serialize()
        return bytes(message.buf)
