"""A manager that leads again after another one has led does not act on what it knew before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import copy_context
from random import Random

import pytest

from gamecast.client.client import Client
from gamecast.client.configuration import configured
from laboratory.simulation.storm import Storm, Weather
from laboratory.simulation.virtualtime import WHOSE, VirtualLoop, virtual_time
from sequencing.plan import Plan

REGIONS = "abcdef"


class Terms:
    """A network of two nodes, and two managers of which one leads."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.storm = Storm(loop, Random(1), Weather(0.001, 0.0), nodes=2, give_up_s=6.0)
        self.client = self.connect("watcher")

    def connect(self, name: str) -> Client:
        return Client(configured("memory://storm", name=name), view=lambda: self.storm.network(name, "client.1"))

    async def begin(self) -> None:
        for manager in ("A.1", "B.1"):
            context = copy_context()
            context.run(WHOSE.set, manager)
            self.loop.create_task(self.storm.manage(manager, "acyclic", 20.0), name=manager, context=context)
            await asyncio.sleep(0.5)  # A leads
        await self.client.open()
        await self.client.subscribe(*REGIONS)
        await asyncio.sleep(3)
        for other in ("one", "two"):  # so that both nodes have regions
            client = self.connect(other)
            await client.open()
            await client.subscribe(other)
        await asyncio.sleep(3)
        assert {path[0] for path in self.plan().paths.values()} == {"n1", "n2"}

    def plan(self) -> Plan:
        assert self.storm.store.record is not None
        return self.storm.store.record.plan


@pytest.fixture
def terms() -> Iterator[Terms]:
    with virtual_time(1, lambda: 0.01) as loop:
        yield Terms(loop)


async def end(terms: Terms) -> None:
    for process in ("A.1", "B.1", "client.1"):
        terms.storm.kill(process)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.wait(left, timeout=60)


def test_the_time_before_another_led_does_not_count_for_giving_a_node_up(terms: Terms) -> None:
    async def run() -> None:
        storm = terms.storm
        await terms.begin()
        first = storm.store._led
        storm.kill("n2")
        await asyncio.sleep(2)
        storm.stopped_until["A"] = terms.loop.now_s + 5  # A has seen it silent for 2 s
        storm.start("n2")
        await asyncio.sleep(4.5)
        assert storm.store._led != first, "B leads, and n2 answers it"
        storm.kill("B.1")
        terms.loop.kill("B.1")
        storm.kill("n2")
        await asyncio.sleep(4)
        assert storm.store._led == first, "A leads again"
        storm.start("n2")
        await asyncio.sleep(3)
        given_up = [record.plan.given_up for record in storm.store.announced]
        assert not any(given_up), "it was away for 2 s, and for 4 s"

    async def run_and_end() -> None:
        try:
            await run()
        finally:
            await end(terms)

    terms.loop.run_until_complete(run_and_end())
