"""Game servers that have installed the base only: they lead a network of one node, and take part in any other."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

import gamecast
from adapters.embedded.server import EmbeddedServer
from adapters.redis.controlkeys import ControlKeys
from tests.integration.networks import register
from tests.patience import patience

ROOT = Path(__file__).parents[3]
PLANNER = ("networkx", "numpy", "scipy")
EXTRAS = (*PLANNER, "aiohttp", "click", "jwt", "matplotlib", "pandas", "prometheus_client", "pyarrow", "rich")

BASE_ONLY = f"""
import sys
sys.modules.update(dict.fromkeys({EXTRAS!r}))  # as the import system marks what cannot be imported
"""

TAKE_PART = """
import asyncio, json, sys
import gamecast

async def main():
    async with gamecast.connect(sys.argv[1], name="base") as cast:
        await cast.subscribe("forest", "river")
        receipt = await cast.publish("forest", {"by": "base"})
        async for event in cast:
            if event.sender == "base":
                break
        loaded = sorted(name for name, module in sys.modules.items() if module is not None)
        print(json.dumps({"region": receipt.region, "payload": event.payload, "loaded": loaded}))

asyncio.run(main())
"""

WAIT_FOR_A_LEADER = """
import asyncio, json, logging, sys
import gamecast
import gamecast.client.incoming as incoming

incoming.LED_AFTER_S = 0.3
logging.basicConfig(level=logging.INFO)

async def told(awaitable):
    try:
        await awaitable
    except gamecast.GamecastError as error:
        return [type(error).__name__, str(error)]

async def main():
    async with gamecast.connect(sys.argv[1], name="base", publish_timeout_s=0.5) as cast:
        answers = [await told(cast.subscribe("forest")), await told(cast.publish("river", 1))]
    if sys.argv[1].startswith("redis"):
        async with gamecast.share(sys.argv[1]) as shared, shared.connect(name="other") as cast:
            answers.append(await told(cast.subscribe("forest")))
    print(json.dumps(answers))

asyncio.run(main())
"""

BROKEN_PLANNER = """
import sys

class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "placement.planner":
            raise %s

sys.meta_path.insert(0, Broken())
"""

ALONE = """
import asyncio, json
import gamecast

async def main():
    told = []
    for url in ("memory://alone?nodes=2", "embedded://?nodes=2"):
        try:
            await gamecast.connect(url).open()
        except gamecast.ExtraMissing as error:
            told.append(str(error))
    print(json.dumps(told))

asyncio.run(main())
"""


async def run(program: str, *arguments: str) -> tuple[Any, str]:
    """Run a program in another process; return what it printed as JSON, and what it said on standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with patience(60):
        out, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    return json.loads(out), said.decode()


async def test_the_base_publishes_and_subscribes_where_another_process_leads(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="leads") as leader:
        await leader.subscribe("forest")
        told, _ = await run(BASE_ONLY + TAKE_PART, redis_server.url)
    assert (told["region"], told["payload"]) == ("forest", {"by": "base"})


async def test_a_connection_that_does_not_lead_loads_nothing_that_plans(redis_server: EmbeddedServer) -> None:
    async with gamecast.connect(redis_server.url, name="leads") as leader:
        await leader.subscribe("forest")
        told, _ = await run(TAKE_PART, redis_server.url)
    loaded = {name.partition(".")[0] for name in told["loaded"]}
    assert not loaded & {*EXTRAS, "placement"}
    assert not {"adapters.leader", "adapters.planning", "sequencing.manager"}.intersection(told["loaded"])


@pytest.fixture
async def two_nodes(redis_server: EmbeddedServer) -> str:
    """A network of two nodes without a leader."""
    await register(redis_server.url, dict.fromkeys(("n1", "n2"), ""))
    return redis_server.url


@pytest.mark.parametrize("url", ["redis", "memory://alone", "embedded://"])
async def test_the_base_alone_serves_a_network_of_one_node(redis_server: EmbeddedServer, url: str) -> None:
    told, _ = await run(BASE_ONLY + TAKE_PART, redis_server.url if url == "redis" else url)
    assert (told["region"], told["payload"]) == ("forest", {"by": "base"})


async def test_the_leader_of_one_node_loads_nothing_that_plans() -> None:
    told, _ = await run(TAKE_PART, "embedded://")
    assert "adapters.leader" in told["loaded"]
    assert not {name.partition(".")[0] for name in told["loaded"]} & {*PLANNER, "placement"}


async def test_a_network_in_which_nobody_can_lead_says_so_and_names_the_extra(two_nodes: str) -> None:
    answers, said = await run(BASE_ONLY + WAIT_FOR_A_LEADER, two_nodes)
    for kind, message in answers:
        assert kind == "NoLeader"
        assert "pip install 'gamecast[planner]'" in message
        assert "gamecast manager" in message
    assert "this process cannot lead" in said


@pytest.mark.parametrize("breaks", ["ImportError('numpy is broken')", "ValueError('numpy is broken')"])
@pytest.mark.parametrize("url", ["redis", "memory://alone?nodes=2"])
async def test_a_network_that_this_process_cannot_plan_for_says_what_cannot_be_loaded(
    two_nodes: str, url: str, breaks: str
) -> None:
    answers, said = await run(BROKEN_PLANNER % breaks + WAIT_FOR_A_LEADER, two_nodes if url == "redis" else url)
    for kind, message in answers:
        assert kind == "NoLeader"
        assert message.endswith("numpy is broken")
    assert "the planner cannot be loaded" in said


async def test_who_waits_goes_on_once_somebody_leads(two_nodes: str) -> None:
    program = BASE_ONLY + TAKE_PART
    waiting = asyncio.create_task(run(program, two_nodes))
    async with patience(30), redis.asyncio.Redis.from_url(two_nodes) as client:
        while not await client.exists(ControlKeys.connections):  # noqa: ASYNC110 - it is another process that acts
            await asyncio.sleep(0.01)
    async with gamecast.connect(two_nodes, name="leads"):
        told, _ = await waiting
    assert told["payload"] == {"by": "base"}


async def test_a_network_that_only_this_process_could_lead_is_refused_at_once() -> None:
    memory, embedded = (await run(BASE_ONLY + ALONE))[0]
    assert memory.endswith("pip install 'gamecast[planner]'")
    assert embedded.endswith("pip install 'gamecast[planner]'")


def test_nobody_leads_is_a_kind_of_the_plan_s_errors_that_may_pass() -> None:
    assert issubclass(gamecast.NoLeader, gamecast.PlanError)
    assert gamecast.NoLeader.retriable
    assert not gamecast.NoLeader.definite  # what was asked for stays asked for
    with pytest.raises(gamecast.GamecastError, match=r"gamecast\[planner\]"):
        raise gamecast.NoLeader
