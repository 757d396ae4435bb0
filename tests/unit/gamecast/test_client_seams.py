"""What a connection takes and returns, where a user sees it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

import cli.status
import gamecast
from adapters.redis.networkstate import NetworkState, NodeState
from cli.publish import publish
from cli.tail import tail
from gamecast import Event, Gap, Receipt, blocking
from gamecast.client.history import parse_since
from gamecast.client.watching import Handlers
from gamecast.testing import memory_url
from sequencing.names import RegionPatterns
from tests.patience import until


@pytest.mark.parametrize("name", ["Limits", "Ordering", "ReplayOrder", "WhenBehind", "WhenFull"])
def test_what_connect_and_subscribe_refer_to_can_be_imported_from_gamecast(name: str) -> None:
    assert name in gamecast.__all__
    assert getattr(gamecast, name)


def test_gaps_and_receipts_have_positions_as_events_have() -> None:
    assert Receipt("forest", 3, 120).position == "3-120"
    assert Gap("forest", 3, 118, 120, "lost").position == "3-120"
    assert Gap("forest", 3, 118, 0, "lost").position is None
    assert "0 if it is unknown" in str(Gap.__doc__)


@pytest.mark.parametrize("since", ["٣-٤", "3-٤", "３-4", "³-4"])
def test_digits_of_other_scripts_are_no_position(since: str) -> None:
    with pytest.raises(gamecast.InvalidInput, match="a position like '3-120'"):
        parse_since(since, {"forest"})


@pytest.mark.parametrize("arguments", [("x",), (None,), (2.5,), (True,), (0,), (1, "x"), (1, float("nan"))])
async def test_what_take_cannot_return_is_refused_with_a_reason(arguments: tuple[Any, ...]) -> None:
    async with gamecast.connect(memory_url()) as cast:
        with pytest.raises(gamecast.UsageError, match=r"fetch\(\)"):
            await cast.fetch(*arguments)


def test_what_a_blocking_take_cannot_return_is_refused_with_a_reason() -> None:
    with blocking.connect(memory_url()) as cast, pytest.raises(gamecast.UsageError, match=r"fetch\(\)"):
        cast.fetch("x")  # type: ignore[arg-type]


def test_help_of_publish_says_that_events_can_be_replayed() -> None:
    told = " ".join(CliRunner().invoke(publish, ["--help"]).output.split())
    assert "later can replay the events" in told
    assert "do not get them" not in told


@pytest.mark.parametrize("since", [["forest=3-1"], ["forest=3-1", "forest=3-2"], ["a=0", "b=0", "c=0"]])
def test_tail_refuses_positions_that_do_not_fit_its_regions(since: list[str]) -> None:
    options = [word for each in since for word in ("--since", each)]
    result = CliRunner().invoke(tail, ["redis://127.0.0.1:1", "forest", "river", *options])
    assert result.exit_code != 0
    assert "REGION=POSITION" in str(result.exception or "") + result.output


def test_status_wraps_no_url_when_its_output_is_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"redis://{'a-host-with-a-long-name.' * 10}example:6379/0"

    async def surveyed(url: str, *, regions: bool) -> NetworkState:
        server = cast(Any, SimpleNamespace(version="7.0", memory_bytes=1, memory_bytes_max=0, run="1", refuses=()))
        node = NodeState("n1", url, url, registered=True, planned=True, may_lose=False, server=server)
        return NetworkState(url, server, None, None, "", None, (node,), (), frozenset())

    monkeypatch.setattr(cli.status, "survey", surveyed)
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(cli.status.status, [url])
    assert shown.exit_code == 0
    assert shown.output.count(url) == 2  # of the control Redis and of the node


async def test_what_one_task_leaves_comes_before_what_another_one_reads() -> None:
    """Also if the other one asks again at once, before the one that was woken has had its turn."""
    async with (
        gamecast.share("memory://x") as network,
        network.connect(name="s") as subscriber,
        network.connect(name="p") as publisher,
    ):
        await subscriber.subscribe("r")
        taken: list[int] = []
        rest = asyncio.Event()

        async def take_batches() -> None:
            async for batch in subscriber.batches():
                taken.extend(event.payload for event in batch if isinstance(event, gamecast.Event))

        async def take_one() -> None:
            event = await anext(subscriber)
            assert isinstance(event, gamecast.Event)
            taken.append(event.payload)
            await rest.wait()

        tasks = [asyncio.create_task(work()) for work in (take_batches, take_one)]
        await asyncio.sleep(0.01)  # both ask
        await asyncio.gather(*(publisher.publish("r", number) for number in range(300)))
        await until(lambda: len(taken) >= 300)
        assert taken == [*range(300)]
        rest.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_one_rule_for_patterns_holds_for_handlers_recordings_and_tokens() -> None:
    patterns = "e:*", "**", "a/*/c", "b[1]?"
    handlers, heard = Handlers(), list[str]()
    for pattern in patterns:
        handlers.on(pattern)(lambda event, pattern=pattern: heard.append(pattern))
    for region, expected in {
        "e:1": ["e:*", "**"],
        "e:1/2": ["**"],
        "a/b/c": ["**", "a/*/c"],
        "b[1]?": ["**", "b[1]?"],
        "b1x": ["**"],
    }.items():
        heard.clear()
        for handler in handlers.of(event := Event(region, "p", None, 1, 1, 0, 0)):
            handler(event)
        assert heard == expected
        assert [pattern for pattern in patterns if region in RegionPatterns([pattern])] == heard
    assert "e:1" not in RegionPatterns([])
