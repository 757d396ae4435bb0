"""The command: it plays both games, and serves their page until it is stopped."""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import sys
from contextlib import ExitStack, suppress

from aiohttp import web

from .match import Side, play
from .site import application

LOOPBACK = "127.0.0.1"
DIVERGED = 1


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python examples/arena",
        description="Bots and visitors fight over loot in overlapping regions, over gamecast and over plain Redis "
        "Pub/Sub on the same servers; a page shows both, and where game servers disagree. Exit status: 0, or 1 if game "
        "servers with gamecast disagreed.",
    )
    parser.add_argument("--port", type=int, default=8765, help="of the page (0: any free one)")
    parser.add_argument(
        "--host", default=LOOPBACK, help="this machine's address for other devices, such as your phone; by default none"
    )
    parser.add_argument("--seconds", type=float, help="end after so long, instead of at Ctrl-C")
    options = parser.parse_args()
    sys.exit(asyncio.run(run(options.host, options.port, options.seconds)))


async def run(host: str, port: int, seconds: float | None) -> int:
    """Play, serve the page, and return the exit status."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with ExitStack() as stack:
        sockets = [stack.enter_context(bound(LOOPBACK, port))]
        port = sockets[0].getsockname()[1]
        if host != LOOPBACK:
            sockets.append(stack.enter_context(bound(host, port)))
        names = [f"{name}:{port}" for name in dict.fromkeys((LOOPBACK, "localhost", host))]
        print("starting four Redis servers, four game servers twice, and two gateways …", file=sys.stderr)
        async with play(host=host, origins=[f"http://{name}" for name in names]) as match:
            runner = web.AppRunner(application(match, names, stop), access_log=None, shutdown_timeout=1)
            await runner.setup()
            try:
                for each in sockets:
                    await web.SockSite(runner, each).start()
                also = f", on other devices http://{host}:{port}" if host != LOOPBACK else ""
                print(f"the arena is open: http://{LOOPBACK}:{port}{also} (Ctrl-C ends it)", flush=True)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), seconds)
            finally:
                stop.set()
                await runner.cleanup()
    for side in match.sides:
        print(verdict(side))
    return DIVERGED if match.sides[0].board.differing else 0


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that has an address, and refuses connections until the page is served."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"{error.strerror}: {host}:{port}") from error
    return listener


def verdict(side: Side) -> str:
    """Return what became of a game, in words."""
    board = side.board
    how = f"{board.differing:,} of {board.compared:,} states differed"
    return f"{side.kind}: {how}; at the end the worlds disagree about {len(board.apart)} of {board.things} things"
