"""Scenarios: lost connections, resumes, refusals and close codes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from demo.patience import Deadline
from gateway.messages import Hello, Subscribe
from gateway.refusal import Close, Code
from laboratory.conformance.log import CHECK_S
from laboratory.conformance.playing import Play, Scenarios
from laboratory.conformance.server import Connection

RECONNECTS = Scenarios()
WATCHED_S = 0.4
"""How long a client that must not connect again is watched. The first wait of a client should be shorter."""
REFUSED_S = 2.5
"""How long a gateway refuses: a client that does not wait longer each time makes enough attempts to see it."""
RETRIABLE = (
    *(Close.GOING_AWAY, Close.INTERNAL, Close.TRY_LATER, Close.HELLO_TIMEOUT, Close.TOO_SLOW, Close.IDLE),
    *(Close.LIMIT, Close.RATE),
)


@RECONNECTS.add("after a TCP reset within a message, everything comes once")
async def reset_within_message(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.events(10, "forest", "river")
    await connection.flush()
    events = play.events(40, "forest", "river", begin=10)
    [text] = connection.encoded(events, connection.follows)
    connection.send_half(text)
    connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    play.events(10, "river", "forest", begin=50)
    await connection.flush()
    await play.reported(60)


@RECONNECTS.add("after several drops, also while events come, everything comes once and in order")
async def drops(play: Play) -> None:
    for turn in range(4):
        connection = await play.connected()
        if turn == 0:
            await play.do("subscribe", regions=["forest", "river", "cave"])
        else:
            await play.heard(connection, Subscribe)
        play.events(20, "forest", "river", "cave", "river", begin=20 * turn)
        await connection.flush()
        connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    await play.reported(80)


@RECONNECTS.add("a gap moves the position at which the client resumes, and so do all positions of an event")
async def resume_after_gap(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.event("forest", 1)
    play.joint(["forest", "river"], 2)
    play.gap("forest")
    await connection.flush()
    await play.reported(2)
    await play.reported(1, "gap")
    connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    play.event("river", 3)
    await connection.flush()
    await play.reported(3)
    await play.do("publish", region="river", payload="the end")
    await play.reported(4)


@RECONNECTS.add("a connection that drops within a state: the state is asked for again, and nothing is lost")
async def reset_within_state(play: Play) -> None:
    for key in range(20):
        play.event("forest", {"text": f"{key} " * 1000}, key=f"k{key}")

    async def small_messages(connection: Connection, hello: Hello) -> None:
        await connection.greet(Hello(hello.token, hello.name, hello.batch_ms, 10_000))

    async def half(connection: Connection, message: Subscribe) -> None:
        play.server.on.pop(Subscribe)
        sent, send = 0, connection.send_text

        async def send_three(text: str) -> None:
            nonlocal sent
            sent += 1
            if sent <= 3:
                await send(text)

        connection.send_text = send_three  # type: ignore[method-assign]
        await connection.subscribe(message)
        connection.reset()
        play.event("forest", None, key="k0")  # deleted: the part that the client has is of the past

    play.server.on |= {Hello: small_messages, Subscribe: half}
    await play.connected()
    subscribing = play.ask("subscribe", regions=["forest"], state=True)
    connection = await play.connected()
    await play.answered(subscribing)
    play.events(2, "forest")
    await connection.flush()
    await play.reported(2)
    await play.reported(1, "state")


@RECONNECTS.add("a subscribe whose answer was lost is sent again, with its since")
async def subscribe_unanswered(play: Play) -> None:
    async def drop(connection: Connection, message: Subscribe) -> None:
        play.server.on.pop(Subscribe)
        connection.reset()

    play.server.on[Subscribe] = drop
    play.events(2, "forest")
    await play.connected()
    subscribing = play.ask("subscribe", regions=["forest"], since=0)
    connection = await play.connected()
    await play.answered(subscribing)
    play.events(3, "forest", begin=2)
    await connection.flush()
    await play.reported(5)


@RECONNECTS.add("a resume that is refused for now is repeated, after retry_after_ms")
async def resume_refused_for_now(play: Play) -> None:
    async def refuse(connection: Connection, message: Subscribe) -> None:
        play.server.on.pop(Subscribe)
        await connection.refuse(message, Code.RATE, retriable=True, retry_after_s=1.0)

    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.events(4, "forest", "river")
    await connection.flush()
    play.server.on[Subscribe] = refuse
    connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    play.events(4, "forest", "river", begin=4)
    await play.log.until(lambda: bool(play.server.last.follows), "the client did not resume again")
    await play.server.last.flush()
    await play.reported(8)


@RECONNECTS.add("a resume that is refused for good is reported: the client ends, or reports an error, also after gaps")
async def resume_refused_for_good(play: Play) -> None:
    async def refuse(connection: Connection, message: Subscribe) -> None:
        await connection.refuse(message, Code.MALFORMED)

    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.events(2, "forest")
    await connection.flush()
    await play.reported(2)
    play.server.on[Subscribe] = refuse
    connection.reset()
    await play.connected()
    await play.log.until(
        lambda: bool(
            [*play.log.reported("error"), *(each for each in play.log.reported("status") if each["status"] == "closed")]
        ),
        "the client reported neither an error nor its end",
    )


def _retriable(code: int) -> Callable[[Play], Awaitable[None]]:
    async def retriable(play: Play) -> None:
        connection = await play.connected()
        await play.do("subscribe", regions=["forest"])
        play.events(3, "forest")
        await connection.flush()
        await connection.close(code)
        connection = await play.connected()
        await play.heard(connection, Subscribe)
        play.events(3, "forest", begin=3)
        await connection.flush()
        await play.reported(6)

    retriable.__name__ = f"close_{code}"
    return retriable


def _final(code: int) -> Callable[[Play], Awaitable[None]]:
    async def final(play: Play) -> None:
        connection = await play.connected()
        await play.do("subscribe", regions=["forest"])
        play.events(3, "forest")
        await connection.flush()
        await play.reported(3)
        await connection.close(code)
        # A client that connects again has failed, whatever it reports: the judge says so.
        await play.log.until(
            lambda: play.log.is_over or len(play.server.connections) > 1,
            f"the client did not report the status 'closed' after {code}",
        )
        await asyncio.sleep(WATCHED_S)

    final.__name__ = f"close_{code}"
    return final


for _code in RETRIABLE:
    RECONNECTS.add(f"after the close code {_code} the client resumes")(_retriable(_code))
for _code in (Close.MALFORMED, Close.UNSUPPORTED, Close.TOO_LARGE, Close.DENIED, Close.SUPERSEDED, Close.EXPIRED):
    RECONNECTS.add(f"after the close code {_code} the client stops, and reports the status closed")(_final(_code))


@RECONNECTS.add("a refused token, the only one, ends the client")
async def token_refused(play: Play) -> None:
    async def refuse(connection: Connection, hello: Hello) -> None:
        await connection.refuse(hello, Code.UNAUTHORIZED)
        await connection.close(Close.UNAUTHORIZED, "this token is not valid")

    play.server.on[Hello] = refuse
    await play.connected()
    await play.status("closed")
    await asyncio.sleep(WATCHED_S)


@RECONNECTS.add("a gateway that refuses every connection is tried at growing intervals")
async def backoff(play: Play) -> None:
    async def refuse(connection: Connection, hello: Hello) -> None:
        await connection.close(Close.TRY_LATER)

    play.server.on[Hello] = refuse
    await play.connected()
    subscribing = play.ask("subscribe", regions=["forest"])
    await asyncio.sleep(REFUSED_S)
    play.server.on.pop(Hello)
    await play.answered(subscribing)
    play.event("forest", 1)
    await play.server.last.flush()
    await play.reported(1)


@RECONNECTS.add("a gateway that says nothing any more is given up after its heartbeat_ms, twice, and 3 s at most")
async def silence(play: Play) -> None:
    play.server.welcome = {"heartbeat_ms": 200}
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.events(2, "forest")
    await connection.flush()
    await play.reported(2)
    connection.fall_silent()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    play.events(2, "forest", begin=2)
    await connection.flush()
    await play.reported(4)


JUNK = (
    b"<html>502 Bad Gateway</html>",
    b"",
    b"null",
    b"[]",
    b"3",
    b'"events"',
    b'{"type":5}',
    b'{"events":[]}',
    b'{"type":"events"}',
    b'{"type":"events","events":3}',
    b'{"type":"events","events":[null]}',
    b'{"type":"acks","acks":null}',
    b'{"type":"subscribed","id":1}',
    b'{"type":"error"}',
)


@RECONNECTS.add("what is no message of the protocol does not end the client: it goes on, or reconnects and resumes")
async def junk(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    for number, content in enumerate((*JUNK, None)):
        if content is None:
            connection.send_junk(b"\x00\xff\xfe", is_binary=True)
        else:
            connection.send_junk(content)
        # It may resume at any time from now on: the event comes over one connection or the other.
        play.event("forest", number)
        await connection.flush()
        await _through(play, number + 1)
        connection = play.server.last


async def _through(play: Play, count: int) -> None:
    """Send what happened over the newest connection, until all of it is reported."""

    deadline = Deadline(play.log.timeout_s)
    while not await play.log.holds(lambda: len(play.log.reported("event")) >= count, CHECK_S):
        if play.server.last.is_open and play.server.last.follows:
            await play.server.last.flush()
        if deadline.passed or play.log.is_over:
            await play.log.until(lambda: False, f"the client did not report {count} events", CHECK_S)
