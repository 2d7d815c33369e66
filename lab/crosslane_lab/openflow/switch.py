"""One connection of a switch: handshake, ports, and flows that a barrier confirms."""

import asyncio

from crosslane_lab.openflow.messages import HEADER_BYTES, Message, Messages

ANSWER_S = 1.0
"""A switch that leaves a barrier without a reply for longer counts as gone."""
HANDSHAKE_S = 5.0

GONE = "the switch hung up; it gets the flow when it connects again"


class SwitchError(Exception):
    """A connection that cannot go on: one sentence."""


class Switch:
    """A switch that speaks OpenFlow 1.3. `ports` has the number of each of its ports by name."""

    def __init__(self, messages: Messages, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.datapath_id = 0
        self.ports: dict[str, int] = {}
        self._messages = messages
        self._reader = reader
        self._writer = writer
        self._pending: dict[int, asyncio.Future[str | None]] = {}
        self._xid = 0

    async def open(self) -> None:
        """Exchange versions, ask for the id and the ports; raises SwitchError if it is no OpenFlow 1.3 switch."""
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                await self._handshake()
        except TimeoutError as error:
            raise SwitchError(f"it left the handshake without an answer for {HANDSHAKE_S:g} s") from error

    async def changed_ports(self) -> list[str]:
        """Serve the connection until ports change, and return their names; raises SwitchError at its end."""
        while True:
            message = await self._receive()
            if message.msg_type == self._messages.of.OFPT_PORT_STATUS:
                return self._on_port_status(message)
            if message.msg_type == self._messages.of.OFPT_BARRIER_REPLY:
                self._settle(message.xid, None)
            elif message.msg_type == self._messages.of.OFPT_ERROR:
                self._settle(message.xid, f"the switch refused the flow (type {message.type}, code {message.code})")

    def next_xid(self) -> int:
        """The transaction id for the flows of the next `confirm`; never 0, which the handshake has."""
        self._xid = self._xid % 0xFFFF_FFFF + 1
        return self._xid

    def confirm(self, flows: list[bytes], xid: int) -> asyncio.Future[str | None]:
        """Send flows and a barrier, all with this transaction id. The result is an error; None once they apply."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[str | None] = loop.create_future()
        self._pending[xid] = done
        self._writer.write(b"".join(flows) + self._messages.barrier(xid))
        late = loop.call_later(ANSWER_S, self.close)
        done.add_done_callback(lambda _: late.cancel())
        return done

    def close(self) -> None:
        """End the connection; what is not confirmed has failed."""
        self._writer.transport.abort()
        for xid in list(self._pending):
            self._settle(xid, GONE)

    async def _handshake(self) -> None:
        of = self._messages.of
        self._writer.write(self._messages.hello())
        hello = await self._receive()
        if hello.msg_type != of.OFPT_HELLO:
            raise SwitchError("its first message is no hello")
        self._writer.write(self._messages.features_request() + self._messages.ports_request())
        while True:
            message = await self._receive()
            if message.msg_type == of.OFPT_FEATURES_REPLY:
                self.datapath_id = message.datapath_id
            elif message.msg_type == of.OFPT_PORT_STATUS:
                self._on_port_status(message)
            elif message.msg_type == of.OFPT_ERROR:
                raise SwitchError(f"it answered with an error (type {message.type}, code {message.code})")
            elif message.msg_type == of.OFPT_MULTIPART_REPLY:
                self.ports |= {_name(port): port.port_no for port in message.body}
                if not message.flags & of.OFPMPF_REPLY_MORE:
                    return

    async def _receive(self) -> Message:
        """The next message; an echo request is answered at once."""
        while True:
            try:
                header = await self._reader.readexactly(HEADER_BYTES)
                version, kind, length, _ = self._messages.header(header)
                if version != self._messages.of.OFP_VERSION and kind != self._messages.of.OFPT_HELLO:
                    raise SwitchError("it does not speak OpenFlow 1.3; set protocols=OpenFlow13 of its bridge")
                if length < HEADER_BYTES:
                    raise SwitchError("it sent a malformed message")
                body = await self._reader.readexactly(length - HEADER_BYTES)
            except (OSError, asyncio.IncompleteReadError) as error:
                raise SwitchError("it hung up") from error
            message = self._messages.received(header, body)
            if message is None:
                raise SwitchError("it sent a malformed message")
            if message.msg_type != self._messages.of.OFPT_ECHO_REQUEST:
                return message
            self._writer.write(self._messages.echo_reply(message))

    def _on_port_status(self, message: Message) -> list[str]:
        name = _name(message.desc)
        if message.reason == self._messages.of.OFPPR_DELETE:
            self.ports.pop(name, None)
        else:
            self.ports[name] = message.desc.port_no
        return [name]

    def _settle(self, xid: int, error: str | None) -> None:
        done = self._pending.pop(xid, None)
        if done is not None and not done.done():
            done.set_result(error)


def _name(port: Message) -> str:
    return port.name.rstrip(b"\0").decode("utf-8", "replace")
