"""An operator sees whose the keys of a region are, and deletes those of one who set too many."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from click.testing import CliRunner

import gamecast
from adapters.embedded.server import EmbeddedServer
from cli.main import cli


async def ran(*arguments: str, status: int = 0) -> str:
    result = await asyncio.to_thread(CliRunner().invoke, cli, ["keys", *arguments])
    assert result.exit_code == status, result.output
    return result.output


async def document(*arguments: str) -> Any:
    return json.loads(await ran(*arguments, "--json"))


async def test_whose_keys_they_are_is_shown_and_those_of_one_are_deleted(redis_server: EmbeddedServer) -> None:
    async with gamecast.share(redis_server.url) as shared, shared.connect(name="server") as server:
        for session in ("~eve~1", "~eve~2", "~bob"):
            async with shared.guest(session, when_behind="wait") as guest:
                for number in range(3):
                    await guest.publish("forest", "x" * 10, key=f"{session[1:]}-{number}")
        await server.publish("forest", {"by": "ana"}, key="sword")
        await server.publish("forest", 1, key="eve~1-0")
        found = await document(redis_server.url, "forest")
        assert found["holders"] == {
            "~eve": {"keys": 5, "bytes": 60},
            "~bob": {"keys": 3, "bytes": 36},
            "server": {"keys": 2, "bytes": 13},
        }
        assert "     5 keys            60 bytes  ~eve" in (await ran(redis_server.url, "forest")).splitlines()
        listed = await ran(redis_server.url, "forest", "--of", "~bob")
        assert "bob-1  " in listed
        assert "eve" not in listed
        deleted = await document(redis_server.url, "forest", "--of", "~eve", "--delete")
        assert (deleted["deleted"], len(deleted["keys"])) == (5, 5)
        await server.subscribe("forest", state=True)
        [state] = await server.fetch(timeout=10)
        assert isinstance(state, gamecast.State)
        assert sorted(state.values["forest"]) == ["bob-0", "bob-1", "bob-2", "eve~1-0", "sword"]
        assert await document(redis_server.url, "nowhere") == {
            "region": "nowhere",
            "holders": {},
            "keys": {},
            "deleted": 0,
        }


async def test_deleting_takes_whose_keys(redis_server: EmbeddedServer) -> None:
    assert "--delete needs --of" in await ran(redis_server.url, "forest", "--delete", status=2)
