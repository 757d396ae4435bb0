"""Calls as a beginner may make them: each is refused at once, in words that say what to do instead."""

from __future__ import annotations

import asyncio
import copy
import math
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import gamecast
import gamecast.classic
import gamecast.errors
from adapters.urls import redacted
from gamecast import blocking
from gamecast.errors import InvalidName, InvalidPayload, UnknownScheme, UsageError
from gamecast.testing import memory_url
from laboratory.protocols import connection

SECRET = "hunter2"


def refused(call: Callable[[], object], kind: type[UsageError], said: str) -> None:
    with pytest.raises(kind, match=said) as caught:
        call()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (123, "a URL is a string, like 'redis://127.0.0.1:6379', not int"),
        (b"redis://host", "a URL is a string"),
        (["redis://host"], "a URL is a string"),
        ("", "write redis://… before it"),
        ("localhost:6379", "write redis://… before it"),
        (f"user:{SECRET}@host", r"'user:\*\*\*@host' does not say what it is a URL of: write redis://… before it"),
        (f"redis:/user:{SECRET}@host", "write redis://… before it"),
        (f"http://user:{SECRET}@host", "use redis://"),
        ("redis://host/abc", "a database has a number, as in redis://127.0.0.1:6379/0"),
        (f"redis:///user:{SECRET}@host", "a database has a number"),
        ("redis://host/1/2", "a database has a number"),
        (f"redis://user:{SECRET}", r"'redis://user:\*\*\*' is not a Redis URL: its port is no number"),
        (f"redis://user:{SECRET}/#?@host", "does not begin options .in passwords, write the characters : / . # @ "),
        (f"redis://user:{SECRET}@[::1", "is no URL"),
        (f"redis://user:x[{SECRET}]y@host", "cannot be read .in passwords"),
        (f"redis://user:{SECRET}\uff0f@host", "cannot be read .in passwords"),
        (f"redis://user:x@{SECRET}#x@host", "does not begin options .in passwords"),
        (f"redis://user:x@{SECRET}?x@host", "does not begin options"),
        (f"redis://host?passwd={SECRET}", "there is no option 'passwd'"),
        (f"redis:/user:{SECRET}@host", "does not say what it is a URL of"),
        (f"redis;//user:{SECRET}@host", "does not say what it is a URL of"),
        (f"redis://host?password={SECRET}&sokcet_timeout=1", "there is no option 'sokcet_timeout'"),
        (f"redis+sentinel://user:{SECRET}@host", "names the service after the sentinels"),
        ("unix://", "names no socket"),
        (f"embedded://user:{SECRET}@host", "has no name or address"),
        ("memory://", "memory://NAME"),
    ],
)
def test_what_is_no_url_is_told_without_its_password(url: Any, said: str) -> None:
    for connect in (gamecast.connect, gamecast.share, blocking.connect):
        refused(partial(connect, url), UsageError, said)


@pytest.mark.parametrize("url", [123, f"user:{SECRET}@host", f"http://user:{SECRET}@host"])
def test_so_it_is_with_a_classic_protocol(url: Any) -> None:
    refused(
        lambda: gamecast.classic.connect(url, name="a", protocol="isis", processes=["a"]), UnknownScheme, "redis://"
    )


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"tree": "ab"}, "tree takes an iterable of pairs of processes, not str"),
        ({"tree": ["ab"]}, "number 1 of them is a str: 'ab'"),
        ({"tree": [("a", 5)]}, "5"),
        ({"network": 5}, "network is a name, that of all who take part, not 5"),
    ],
)
def test_so_it_is_with_the_tree_and_the_network_of_a_classic_protocol(option: dict[str, Any], said: str) -> None:
    whole: dict[str, Any] = {"url": "memory://x", "name": "a", "protocol": "propagation-tree", "processes": ["a", "b"]}
    for connect in (gamecast.classic.connect, connection.connect):
        refused(partial(connect, **whole, **option), UsageError, said)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("redis://[::1]:6379", "redis://[::1]:6379"),
        ("redis://host", "redis://host"),
        (f"redis://user:{SECRET}@host:1", "redis://user:***@host:1"),
        (f"redis://:{SECRET}@host", "redis://:***@host"),
        (f"redis://a:{SECRET}:{SECRET}@{SECRET}@host", "redis://a:***@host"),
        (f"unix:///run/redis.sock?password={SECRET}&db=1", "unix:///run/redis.sock?password=***&db=1"),
        (
            f"redis+sentinel://a:1,b:2/main?sentinel_password={SECRET}",
            "redis+sentinel://a:1,b:2/main?sentinel_password=***",
        ),
        (f"redis://user:{SECRET}", "redis://user:***"),
        (f"redis://host?passwd={SECRET}&{SECRET}&db=1", "redis://host?passwd=***&***&db=1"),
        (f"user:{SECRET}@host", "user:***@host"),
        ("localhost:6379", "localhost:6379"),
    ],
)
def test_passwords_are_left_out_wherever_they_stand(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ({"buffer_events_max": "5"}, "buffer_events_max is a whole number, not '5'"),
        ({"buffer_events_max": 5.5}, "is a whole number"),
        ({"inbox_events_max": True}, "is a whole number"),
        ({"retention_events": -1}, "must be positive"),
        ({"publish_timeout_s": "3"}, "publish_timeout_s is a number, not '3'"),
        ({"publish_timeout_s": math.nan}, "is a number"),
        ({"buffer": 5}, "has no option buffer; limits are buffer_events_max, "),
        ({"name": 5}, "a connection name is a string"),
        ({"ordering": ["causal"]}, "ordering is 'acyclic'"),
        ({"when_full": 1}, "when_full is 'wait' or 'refuse'"),
        ({"routes": 5}, "routes is a mapping"),
        ({"routes": "ab"}, "routes is a mapping"),
        ({"routes": {"redis://a": 2}}, "a URL is a string"),
        ({"record": 5}, "record needs the directory of a session"),
        ({"protocol": "isis"}, "has no option protocol"),
    ],
)
def test_options_that_cannot_be_right_are_refused_at_once(option: dict[str, Any], said: str) -> None:
    refused(lambda: gamecast.connect("redis://host", **option), UsageError, said)


def test_what_a_recording_is_to_be_like_is_checked() -> None:
    refused(lambda: gamecast.Recording("there", roll_s="1"), UsageError, "roll_s is a number")  # type: ignore[arg-type]
    refused(lambda: gamecast.Recording(5), UsageError, "directory of a session")  # type: ignore[arg-type]


def test_what_is_shared_has_no_name() -> None:
    refused(lambda: gamecast.share(memory_url(), name="a"), UsageError, "no option name")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ({"groups": 5}, "groups is a mapping"),
        ({"groups": {"forest": "ab"}}, "the members of 'forest' are a list of names, not 'ab'"),
        ({"processes": "ab"}, "processes is a list of names, not 'ab'"),
        ({"processes": ["a", 5]}, "a connection name is a string"),
    ],
)
def test_who_takes_part_in_a_protocol_is_named_one_by_one(setup: dict[str, Any], said: str) -> None:
    refused(lambda: gamecast.classic.connect(memory_url(), name="a", protocol="isis", **setup), UsageError, said)


@pytest.mark.parametrize("nodes", [0, 2.5, "x", True])
def test_a_network_has_a_whole_number_of_nodes(nodes: Any) -> None:
    refused(lambda: memory_url(nodes=nodes), UsageError, "a network must have 1 to 64 nodes")


REGION = "a region is a string, not "
PAIRS = r"publish_batch takes \(region, payload\) pairs, and "
WRONG_CALLS: dict[str, tuple[Callable[[Any], Any], type[UsageError], str]] = {
    "publish a list": (lambda cast: cast.publish(["a"], 1), InvalidName, REGION + "list"),
    "publish a dict": (lambda cast: cast.publish({}, 1), InvalidName, REGION + "dict"),
    "publish bytes": (lambda cast: cast.publish(b"a", 1), InvalidName, REGION + "bytes"),
    "publish soon": (lambda cast: cast.publish_async(["a"], 1), InvalidName, REGION + "list"),
    "NaN": (lambda cast: cast.publish("a", math.nan), InvalidPayload, "NaN or an infinity"),
    "infinity": (lambda cast: cast.publish_async("a", {"x": [1, (-math.inf,)]}), InvalidPayload, "NaN or an infinity"),
    "bytearray": (
        lambda cast: cast.publish("a", bytearray(b"x")),
        InvalidPayload,
        "bytearray: send what JSON",
    ),
    "all of a mapping": (
        lambda cast: cast.publish_batch({"ab": 1}),
        UsageError,
        PAIRS + r"this is a dict: .* items\(\)",
    ),
    "all of a number": (
        lambda cast: cast.publish_batch(5),
        UsageError,
        "publish_batch takes an iterable of .* not int",
    ),
    "all of a text": (
        lambda cast: cast.publish_batch("ab"),
        UsageError,
        "publish_batch takes an iterable of .* not str",
    ),
    "all of texts": (lambda cast: cast.publish_batch(["ab"]), UsageError, PAIRS + "number 1 of them is a str: 'ab'"),
    "all of sets": (lambda cast: cast.publish_batch([{"a", 1}]), UsageError, PAIRS + "number 1 of them is a set"),
    "all of one": (lambda cast: cast.publish_batch([("a", 1), ("b",)]), UsageError, PAIRS + "number 2 .* two things"),
    "all of three": (lambda cast: cast.publish_batch([("a", 1, 2)]), UsageError, PAIRS + "number 1 .* two things"),
    "all of numbers": (
        lambda cast: cast.publish_batch([1]),
        UsageError,
        PAIRS + "number 1 of them is not two things: 1",
    ),
    "all of lists": (lambda cast: cast.publish_batch([(["a"], 1)]), InvalidName, REGION + "list"),
    "all with NaN": (
        lambda cast: cast.publish_batch([("a", 1), ("a", math.nan)]),
        InvalidPayload,
        "NaN or an infinity",
    ),
    "subscribe to a mapping": (lambda cast: cast.subscribe({"a": 1}), InvalidName, "or a list of them, not a dict"),
    "subscribe to a list of numbers": (lambda cast: cast.subscribe(["a", 5]), InvalidName, REGION + "int"),
    "subscribe to a pattern": (lambda cast: cast.subscribe("e:*"), InvalidName, r"reserved for patterns: 'e:\*'"),
    "publish to a pattern": (lambda cast: cast.publish("e:*", 1), InvalidName, r"reserved for patterns: 'e:\*'"),
    "subscribe to a number": (lambda cast: cast.subscribe(5), InvalidName, REGION + "int"),
    "since a word": (lambda cast: cast.subscribe("a", since="x"), UsageError, "since is an epoch, .* not 'x'"),
    "unsubscribe a pattern": (lambda cast: cast.unsubscribe(["e:*"]), InvalidName, r"reserved for patterns: 'e:\*'"),
    "expect texts": (
        lambda cast: cast.declare_overlaps(["ab"]),
        UsageError,
        "declare_overlaps takes pairs of regions, .* is a str: 'ab'",
    ),
    "expect a text": (lambda cast: cast.declare_overlaps("ab"), UsageError, "not str"),
    "expect a mapping": (lambda cast: cast.declare_overlaps({"a": "b"}), UsageError, r"give its items\(\)"),
    "expect a pair": (lambda cast: cast.declare_overlaps(("ax", "bx")), UsageError, "number 1 of them is a str: 'ax'"),
    "expect numbers": (lambda cast: cast.declare_overlaps([("a", 5)]), InvalidName, REGION + "int"),
    "expect itself": (lambda cast: cast.declare_overlaps([("a", "a")]), UsageError, "does not overlap with itself"),
}


@pytest.mark.parametrize("call", WRONG_CALLS)
async def test_wrong_calls_say_what_is_right_and_do_nothing(call: str) -> None:
    make, kind, said = WRONG_CALLS[call]
    url = memory_url(nodes=2)
    async with gamecast.connect(url, name="a") as cast, asyncio.timeout(10):
        with pytest.raises(kind, match=said):
            await make(cast)
        assert cast.statistics().published_events == cast.statistics().buffered_events == 0


@pytest.mark.parametrize("call", WRONG_CALLS)
def test_blocking_calls_say_the_same(call: str) -> None:
    make, kind, said = WRONG_CALLS[call]
    with blocking.connect(memory_url(nodes=2)) as cast, pytest.raises(kind, match=said):
        _result(make(cast))


async def test_connections_that_share_say_the_same() -> None:
    async with gamecast.share(memory_url()) as shared, shared.connect(name="a") as cast:
        for make, kind, said in WRONG_CALLS.values():
            with pytest.raises(kind, match=said):
                await make(cast)


async def test_so_do_those_of_a_classic_protocol_as_far_as_they_have_the_calls() -> None:
    async with gamecast.classic.connect(memory_url(), name="a", protocol="isis", groups={"a": ["a"]}) as cast:
        for call in ("publish a list", "publish soon", "NaN", "infinity", "all of a mapping", "all of texts"):
            make, kind, said = WRONG_CALLS[call]
            with pytest.raises(kind, match=said):
                await make(cast)


async def test_handlers_are_functions_and_have_a_pattern() -> None:
    cast = gamecast.connect(memory_url())
    refused(lambda: cast.on(print), UsageError, r'as in @client\.on\("forest\*"\)')  # type: ignore[arg-type]
    refused(lambda: cast.on("forest")(5), UsageError, "a handler is a function")  # type: ignore[type-var]


def test_a_callback_that_would_wait_for_itself_is_told_so_and_does_not_hang() -> None:
    happened = threading.Event()
    caught: list[BaseException] = []
    with blocking.connect(memory_url()) as cast:

        def on_receipt(_: object) -> None:
            try:
                cast.publish("a", 2)
            except UsageError as error:
                caught.append(error)
            happened.set()

        while not caught:  # one that is published before the callback is added calls it here, where it may wait
            happened.clear()
            cast.publish_async("a", 1).add_done_callback(on_receipt)
            assert happened.wait(10)
    assert "use publish_async" in str(caught[0])


def _result(made: Any) -> Any:
    return made.result(10) if hasattr(made, "result") else made


def test_an_event_that_was_partly_published_is_told_to_other_processes_too() -> None:
    error = gamecast.PartlyPublished(gamecast.Unreachable("gone"), [gamecast.Unreachable("gone"), "a receipt"])
    for copied in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert str(copied) == str(error)
        assert copied.outcomes[1] == "a receipt"


def test_each_error_is_exported_where_users_look_for_it() -> None:
    assert set(gamecast.errors.__all__) <= set(gamecast.__all__)
