"""`crosslane-lab openflow`: an OpenFlow 1.3 controller beside `crosslane controller`, for Open vSwitch.

It takes redirects of home addresses as JSON lines on a Unix socket and installs the flow of each in the switch that
connects to it.
"""

import argparse
import asyncio
import os
import signal
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from crosslane_lab.errors import LabError
from crosslane_lab.openflow import ports
from crosslane_lab.openflow.controller import Controller
from crosslane_lab.openflow.messages import Messages
from crosslane_lab.openflow.requests import MAX_LINE, RequestError, answer, parse

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""What serves one connection."""

MAX_PENDING = 256
"""The maximum number of requests of one connection that wait for the switch."""


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    one = commands.add_parser("openflow", help="lead home addresses by OpenFlow 1.3", description=__doc__)
    one.add_argument(
        "--listen",
        default="127.0.0.1:6653",
        metavar="HOST:PORT",
        help="where the switch connects (default: %(default)s)",
    )
    one.add_argument("--socket", type=Path, required=True, metavar="PATH", help="the Unix socket for redirects")
    one.add_argument("--config", type=Path, required=True, metavar="FILE", help="the port of each unit (TOML)")
    one.set_defaults(act=_openflow)


def _openflow(options: argparse.Namespace) -> None:
    host, port = _address(options.listen)
    controller = Controller(Messages(), ports.read(options.config), partial(print, flush=True))
    _clear(options.socket)
    asyncio.run(_serve(controller, host, port, options.socket))


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise LabError(f'while reading --listen: "{listen}" is no HOST:PORT; write one as 127.0.0.1:6653')
    return host.removeprefix("[").removesuffix("]"), int(port)


def _clear(path: Path) -> None:
    """Remove a socket that a killed process left over."""
    if not path.exists():
        return
    if not stat.S_ISSOCK(path.stat().st_mode):
        raise LabError(f"while listening on {path}: it is no socket; choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise LabError(f"while listening on {path}: another process does; end it, or choose another path")
    path.unlink()


async def _serve(controller: Controller, host: str, port: int, path: Path) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    try:
        switches = await asyncio.start_server(partial(_until_stopped, controller.serve), host, port)
    except OSError as error:
        raise LabError(f"while listening on {host}:{port}: {error.strerror}; choose another --listen") from error
    mask = os.umask(0o077)
    try:
        client = partial(_until_stopped, partial(_client, controller))
        requests = await asyncio.start_unix_server(client, path, limit=MAX_LINE)
    except OSError as error:
        raise LabError(f"while listening on {path}: {error.strerror}; choose another --socket") from error
    finally:
        os.umask(mask)
    print(f"listening on {host}:{port} for a switch, on {path} for redirects", flush=True)
    await stopped.wait()
    switches.close()
    requests.close()
    path.unlink(missing_ok=True)


async def _until_stopped(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve a connection; the end of the process, which cancels it, is no error."""
    with suppress(asyncio.CancelledError):
        await serve(reader, writer)


async def _client(controller: Controller, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the lines of one connection, each as soon as the switch has confirmed it."""
    free = asyncio.Semaphore(MAX_PENDING)

    async def finish(request_id: int, done: "asyncio.Future[str | None]") -> None:
        writer.write(answer(request_id, await done))
        free.release()

    try:
        async with asyncio.TaskGroup() as tasks:
            while line := await reader.readline():
                try:
                    request = parse(line)
                    done = controller.begin(request)
                except RequestError as error:
                    writer.write(answer(error.id, str(error)))
                    await writer.drain()
                else:
                    await free.acquire()
                    tasks.create_task(finish(request.id, done))
                    await writer.drain()
    except* ValueError:
        writer.write(answer(None, f"a line has more than {MAX_LINE} bytes; send one object a line"))
    except* OSError:
        pass
    finally:
        writer.close()
