"""What is wanted of each home address, and the switch that is to carry it out."""

import asyncio
from collections.abc import Callable
from ipaddress import IPv4Address

from crosslane_lab.openflow.messages import Messages
from crosslane_lab.openflow.ports import Port
from crosslane_lab.openflow.requests import Redirect, RequestError
from crosslane_lab.openflow.switch import Switch, SwitchError

MAX_HOMES = 4096
"""The maximum number of home addresses: as many flows and no more."""


class Controller:
    """Turns redirects into flows of one switch, again whenever it connects. `report` takes a sentence per event."""

    def __init__(self, messages: Messages, ports: dict[str, Port], report: Callable[[str], None]) -> None:
        self._messages = messages
        self._ports = ports
        self._report = report
        self._wanted: dict[IPv4Address, str | None] = {}
        """The unit of each home address; None until the switch has confirmed a withdrawal."""
        self._switch: Switch | None = None

    def begin(self, request: Redirect) -> "asyncio.Future[str | None]":
        """Send the flow of a request. The result is an error; None once it applies. Requests keep their order."""
        self._check(request)
        self._wanted[request.home] = request.unit
        if self._switch is None:
            raise RequestError("no switch is connected; it gets the flow when it connects", request.id)
        xid = self._switch.next_xid()
        flow = self._flow(self._switch, request.home, request.unit, xid)
        if flow is None:
            port = self._ports[request.unit or ""].name
            sentence = f'the switch has no port "{port}"; it gets the flow when the port is added'
            raise RequestError(sentence, request.id)
        done = self._switch.confirm([flow], xid)
        done.add_done_callback(lambda done: self._on_confirmed(request.home, done))
        return done

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of a switch until it ends."""
        switch = Switch(self._messages, reader, writer)
        name = "a switch"
        try:
            await switch.open()
            name = f"switch {switch.datapath_id:016x}"
            self._take(switch)
            self._report(f"{name} connected, with the ports {', '.join(sorted(switch.ports))}")
            self._install(switch, list(self._wanted), first=True)
            while True:
                names = await switch.changed_ports()
                units = {unit for unit, port in self._ports.items() if port.name in names}
                self._install(switch, [home for home, unit in self._wanted.items() if unit in units])
        except SwitchError as error:
            self._report(f"{name}: {error}")
        finally:
            if self._switch is switch:
                self._switch = None
            switch.close()

    def _check(self, request: Redirect) -> None:
        if request.unit is not None and request.unit not in self._ports:
            sentence = f'unit "{request.unit}" has no port in the configuration; add a table [[port]]'
            raise RequestError(sentence, request.id)
        if request.home not in self._wanted and len(self._wanted) >= MAX_HOMES:
            sentence = f"there are {MAX_HOMES} home addresses, the most that are kept; withdraw some"
            raise RequestError(sentence, request.id)

    def _take(self, switch: Switch) -> None:
        """A switch that connects again replaces its former connection; a second switch is rejected."""
        former = self._switch
        if former is not None and former.datapath_id != switch.datapath_id:
            raise SwitchError(
                f"rejected, since switch {former.datapath_id:016x} is connected; start a controller for it"
            )
        self._switch = switch
        if former is not None:
            former.close()

    def _install(self, switch: Switch, homes: list[IPv4Address], first: bool = False) -> None:
        xid = switch.next_xid()
        flows = [flow for home in homes if (flow := self._flow(switch, home, self._wanted[home], xid))]
        if first:
            flows.insert(0, self._messages.others(xid))
        if not flows:
            return
        withdrawn = [home for home in homes if self._wanted[home] is None]

        def on_confirmed(done: "asyncio.Future[str | None]") -> None:
            self._report(done.result() or f"flows for {len(homes)} home addresses confirmed")
            for home in withdrawn:
                self._on_confirmed(home, done)

        switch.confirm(flows, xid).add_done_callback(on_confirmed)

    def _flow(self, switch: Switch, home: IPv4Address, unit: str | None, xid: int) -> bytes | None:
        """The message for one home address; None if the switch lacks the port."""
        if unit is None:
            return self._messages.withdraw(home, xid)
        port = self._ports[unit]
        number = switch.ports.get(port.name)
        return None if number is None else self._messages.redirect(home, port, number, xid)

    def _on_confirmed(self, home: IPv4Address, done: "asyncio.Future[str | None]") -> None:
        if not done.cancelled() and done.result() is None and self._wanted.get(home, "") is None:
            del self._wanted[home]
