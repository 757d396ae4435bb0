"""The programs of `docs/drop-ins.md` run as they stand."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adapters.embedded.ports import free_port
from adapters.embedded.server import EmbeddedServer
from tests.patience import patience, scaled

PAGE = (Path(__file__).parents[3] / "docs" / "drop-ins.md").read_text(encoding="utf-8")
PROGRAMS = {
    block.partition("\n")[0].removeprefix("# "): block
    for block in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
}

PLAYERS = """
import asyncio, json, sys
from asgiref.testing import ApplicationCommunicator

async def player():
    communicator = ApplicationCommunicator(application, {"type": "websocket", "path": "/", "headers": []})
    await communicator.send_input({"type": "websocket.connect"})
    assert (await communicator.receive_output(20))["type"] == "websocket.accept"
    return communicator

async def main():
    players = [await player() for _ in range(2)]
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for number in range(20):
        for each, group in zip(players, ("forest", "river")):
            text = json.dumps({"group": group, "text": f"{sys.argv[1]} {number}"})
            await each.send_input({"type": "websocket.receive", "text": text})
    for each in players:
        print(json.dumps([json.loads((await each.receive_output(20))["text"]) for _ in range(80)]))
    for each in players:
        await each.send_input({"type": "websocket.disconnect", "code": 1000})
        await each.wait(20)

asyncio.run(main())
"""


async def test_players_of_two_workers_see_one_order(tmp_path: Path) -> None:
    pytest.importorskip("channels", reason="needs channels: pip install 'gamecast[channels]'")
    pytest.importorskip("msgpack", reason="needs msgpack: pip install 'gamecast[channels]'")
    (tmp_path / "world.py").write_text(PROGRAMS["world.py"] + PLAYERS, encoding="utf-8")
    with EmbeddedServer() as server:
        command = "env", f"GAMECAST_URL={server.url}", sys.executable, str(tmp_path / "world.py")
        workers = [
            await asyncio.create_subprocess_exec(*command, name, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for name in ("one", "other")
        ]
        try:
            async with asyncio.timeout(scaled(60)):
                for worker in workers:
                    assert worker.stdout is not None
                    assert await worker.stdout.readline() == b"ready\n"
                outputs = await asyncio.gather(*(worker.communicate(b"go\n") for worker in workers))
        finally:
            for worker in workers:
                if worker.returncode is None:
                    worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0]
    orders = [json.loads(line) for output, _ in outputs for line in output.splitlines()]
    assert len(orders) == 4
    assert all(order == orders[0] for order in orders)
    assert len({tuple(event) for event in orders[0]}) == 80


async def test_clients_of_two_servers_see_one_order(tmp_path: Path) -> None:
    socketio = pytest.importorskip("socketio", reason="needs python-socketio: pip install 'gamecast[socketio]'")
    pytest.importorskip("aiohttp", reason="needs aiohttp: pip install 'gamecast[gateway]'")
    (tmp_path / "rooms.py").write_text(PROGRAMS["rooms.py"], encoding="utf-8")
    ports = free_port(), free_port()
    orders: list[list[list[str]]] = [[], []]
    all_came = asyncio.Event()
    with EmbeddedServer() as server:
        command = "env", f"GAMECAST_URL={server.url}", sys.executable, str(tmp_path / "rooms.py")
        servers = [await asyncio.create_subprocess_exec(*command, str(port)) for port in ports]
        clients = [socketio.AsyncClient() for _ in ports]
        try:
            async with patience(40):
                for client, port, order in zip(clients, ports, orders, strict=True):

                    def note(*said: str, order: list[list[str]] = order) -> None:
                        order.append([*said])
                        if all(len(each) == 80 for each in orders):
                            all_came.set()

                    client.on("said", note)
                    await connected(client, f"http://127.0.0.1:{port}")
                    for room in ("forest", "river"):
                        await client.call("enter", room)
                for number in range(20):
                    for at, client in enumerate(clients):
                        for room in ("forest", "river"):
                            await client.emit("say", (room, f"{at} {number}"))
                await all_came.wait()
        finally:
            for client in clients:
                await client.disconnect()
            for process in servers:
                process.terminate()
                await process.wait()
    assert orders[0] == orders[1]


async def connected(client: Any, url: str) -> None:
    from socketio.exceptions import ConnectionError as NotThere

    while True:
        try:
            await client.connect(url, transports=["websocket"])
        except NotThere:  # the server is still starting
            await asyncio.sleep(0.1)
        else:
            return


@pytest.mark.parametrize("program", ["with_aiohttp.py", "with_fastapi.py", "with Starlette"])
async def test_browsers_of_two_processes_see_one_order(program: str, tmp_path: Path) -> None:
    aiohttp = pytest.importorskip("aiohttp", reason="needs aiohttp: pip install 'gamecast[gateway]'")
    text = PROGRAMS["with_aiohttp.py" if program == "with_aiohttp.py" else "with_fastapi.py"]
    if program != "with_aiohttp.py":
        pytest.importorskip("fastapi" if "fastapi" in program else "starlette")
        pytest.importorskip("uvicorn")
    if program == "with Starlette":
        text = text.replace("from fastapi import FastAPI, WebSocket, WebSocketDisconnect", STARLETTE)
        text = text.replace("app = FastAPI(lifespan=world)\n", "").replace("app: FastAPI", "app: Starlette")
        text = text.replace('@app.websocket("/play")\n', "")
        app = 'app = Starlette(routes=[WebSocketRoute("/play", play)], lifespan=world)'
        assert app in PAGE
        text = text.replace('if __name__ == "__main__":', f'{app}\n\nif __name__ == "__main__":')
    file = tmp_path / "program.py"
    file.write_text(text, encoding="utf-8")
    ports = free_port(), free_port()
    with EmbeddedServer() as server:
        command = "env", f"GAMECAST_URL={server.url}", sys.executable, str(file)
        servers = [await asyncio.create_subprocess_exec(*command, str(port)) for port in ports]
        try:
            async with patience(40), aiohttp.ClientSession() as session:
                sockets = [await opened(session, f"http://127.0.0.1:{port}/play") for port in ports for _ in range(2)]
                for number in range(20):
                    for at, socket in enumerate(sockets):
                        await socket.send_json([("forest", "river")[(at + number) % 2], f"{at} {number}"])
                orders = [[await socket.receive_json() for _ in range(80)] for socket in sockets]
                for socket in sockets:
                    await socket.close()
        finally:
            for process in servers:
                process.terminate()
                await process.wait()
    assert all(order == orders[0] for order in orders)
    assert len({tuple(event) for event in orders[0]}) == 80


STARLETTE = """from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect"""


async def opened(session: Any, url: str) -> Any:
    from aiohttp import ClientError

    while True:
        try:
            return await session.ws_connect(url)
        except ClientError:  # the server is still starting
            await asyncio.sleep(0.1)
