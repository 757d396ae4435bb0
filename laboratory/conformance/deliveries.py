"""Scenarios: what a client receives over one connection."""

from __future__ import annotations

import asyncio

import orjson

from gateway.eventmessages import position_text
from gateway.messages import Hello, Subscribe
from gateway.refusal import Code
from laboratory.conformance.playing import Play, Scenarios
from laboratory.conformance.server import Connection

DELIVERIES = Scenarios()
FLOOD_EVENTS = 10_000


@DELIVERIES.add("events of a region come in order, one in each message")
async def subscribe(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    for event in range(5):
        play.event("forest", {"number": event})
        await connection.flush()
    await play.reported(5)


@DELIVERIES.add("events of several regions come in one order, within messages and across them")
async def order(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    for batch in range(4):
        play.events(25, "forest", "river", "forest", begin=25 * batch)
        await connection.flush()
    await play.reported(100)


@DELIVERIES.add("events of regions that were subscribed to one after the other come in one order")
async def join_later(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.events(3, "forest", "river")
    await connection.flush()
    await play.do("subscribe", regions=["river"])
    play.events(6, "river", "forest", begin=3)
    await connection.flush()
    await play.reported(2 + 6)


@DELIVERIES.add("any JSON comes as it was published")
async def payloads(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest/grüße", "forest"])
    values = [None, True, 0, -1.5, 2**53 - 1, "", 'grüße ✓ 😀\n"\\', [], {}, [[{"a": [None]}]], {"ключ": {"": 0}}]
    for value in values:
        play.event("forest/grüße", value)
    play.event("forest", {"open": True}, key="door-4")
    await connection.flush()
    await play.reported(len(values) + 1)


@DELIVERIES.add("bytes come as they were published")
async def bytes_payloads(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    for content in (b"", b"\x00\x7f\xff", bytes(range(256))):
        play.event("forest", content)
    await connection.flush()
    await play.reported(3)


@DELIVERIES.add("a gap is reported in its place among the events")
async def gaps(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.event("forest", 1)
    play.gap("river")
    play.event("river", 2)
    play.gap("forest", 1)
    play.event("forest", 3)
    await connection.flush()
    await play.reported(3)
    await play.reported(2, "gap")


@DELIVERIES.add("an event of several regions is reported once")
async def joint_events(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.event("forest", 1)
    play.joint(["forest", "river", "cave"], 2)
    play.joint(["cave", "river"], 3)
    play.event("river", 4)
    await connection.flush()
    await play.reported(4)


@DELIVERIES.add("the state of a region comes first, then all events after it")
async def state(play: Play) -> None:
    connection = await play.connected()
    play.event("forest", {"open": True}, key="door-4")
    play.event("forest", b"\x01\x02", key="chest")
    play.event("forest", {"open": False}, key="door-4")
    await play.do("subscribe", regions=["forest", "river"], state=True)
    play.events(3, "forest", "river")
    await connection.flush()
    await play.reported(3)
    await play.reported(2, "state")


@DELIVERIES.add("a state that comes in parts is reported once, with all of its keys")
async def state_in_parts(play: Play) -> None:
    for key in range(40):
        play.event("forest", {"text": f"{key} " * 1000}, key=f"k{key}")

    async def small_messages(connection: Connection, hello: Hello) -> None:
        await connection.greet(Hello(hello.token, hello.name, hello.batch_ms, 10_000))

    play.server.on[Hello] = small_messages
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"], state=True)
    play.events(2, "forest")
    await connection.flush()
    await play.reported(2)
    await play.reported(1, "state")


@DELIVERIES.add("since a position, the history behind it comes first")
async def since_position(play: Play) -> None:
    connection = await play.connected()
    before = play.events(20, "forest", "river")
    since = {"forest": before[4].position, "river": before[9].position}
    await play.do("subscribe", regions=["forest", "river"], since=since)
    play.events(4, "river", "forest", begin=20)
    await connection.flush()
    await play.reported(7 + 5 + 4)


@DELIVERIES.add("since 0, all that is kept comes first, then live events")
async def since_oldest(play: Play) -> None:
    connection = await play.connected()
    play.events(300, "forest")
    play.gap("forest")
    await play.do("subscribe", regions=["forest"], since=0)
    play.events(3, "forest", begin=300)
    await connection.flush()
    await play.reported(303)
    await play.reported(1, "gap")


@DELIVERIES.add("a refused subscription is reported, and the others go on")
async def subscribe_refused(play: Play) -> None:
    async def guard(connection: Connection, message: Subscribe) -> None:
        if "secret" in message.regions:
            await connection.refuse(message, Code.FORBIDDEN)
        else:
            await connection.subscribe(message)

    play.server.on[Subscribe] = guard
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    await play.do("subscribe", regions=["secret"], refusal=Code.FORBIDDEN)
    await play.do("subscribe", regions=["river"])
    await play.do("subscribe", regions=["river", "secret"], refusal=Code.FORBIDDEN)  # river stays joined
    play.events(4, "forest", "river")
    await connection.flush()
    connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    play.events(4, "forest", "river", begin=4)
    await connection.flush()
    await play.reported(8)


@DELIVERIES.add("after an unsubscribe, also after a reconnect, the region is not followed")
async def unsubscribe(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.events(4, "forest", "river")
    await connection.flush()
    await play.reported(4)
    await play.do("unsubscribe", regions=["river"])
    play.events(4, "forest", "river", begin=4)
    await connection.flush()
    connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    play.events(2, "forest", "river", begin=8)
    await connection.flush()
    await play.reported(4 + 2 + 1)


@DELIVERIES.add("10,000 events in a row are all reported")
async def flood(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.events(FLOOD_EVENTS, "forest", "river")
    await connection.flush()
    await play.reported(FLOOD_EVENTS)


@DELIVERIES.add("an event of 64 KiB, larger than a message of several events, comes alone")
async def large_event(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.event("forest", 1)
    play.event("forest", "x" * 65_534)
    play.event("forest", bytes(65_536))
    play.event("forest", 2)
    await connection.flush()
    await play.reported(4)


@DELIVERIES.add("a server that answers late, in small frames that cut letters, is waited for")
async def slow_server(play: Play) -> None:
    async def late(connection: Connection, hello: Hello) -> None:
        await asyncio.sleep(0.15)
        await connection.greet(hello)

    async def later(connection: Connection, message: Subscribe) -> None:
        await asyncio.sleep(0.15)
        await connection.subscribe(message)

    play.server.on |= {Hello: late, Subscribe: later}
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    events = [play.event("forest", f"grüße ✓ 😀 {number}") for number in range(3)]
    [text] = connection.encoded(events, {"forest": ()})
    await connection.send_fragments(text, 23, 0.001)
    await play.reported(3)


@DELIVERIES.add("numbers with a fraction of zero are integers")
async def floats(play: Play) -> None:
    def with_floats(text: bytes) -> bytes:
        return orjson.dumps(_floating(orjson.loads(text)))

    play.server.transform = with_floats
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.events(3, "forest")
    await connection.flush()
    await play.do("publish", region="forest", payload={"mine": 1})
    await play.reported(4)


def _floating(value: object) -> object:
    if isinstance(value, dict):
        return {name: _floating(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_floating(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@DELIVERIES.add("unknown types of messages, and unknown fields, are ignored")
async def unknown(play: Play) -> None:
    def with_more(text: bytes) -> bytes:
        document = orjson.loads(text) | {"x_new": {"any": ["thing"]}, "x_more": None}
        for name in ("events", "acks"):
            document[name] = [each | {"x_new": 1} for each in document.get(name, [])]
            if not document[name]:
                del document[name]
        return orjson.dumps(document)

    play.server.transform = with_more
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.event("forest", 1)
    await connection.flush()
    for text in (b'{"type":"weather","events":7,"id":1}', b'{"type":"pong"}', b'{"type":"pong","id":99}'):
        connection.send_junk(text)
    play.event("forest", 2)
    await connection.flush()
    await play.do("publish", region="forest", payload=3)
    await play.reported(3)


@DELIVERIES.add("a gap of unknown length, without a position, is reported, and leaves the region's position")
async def gap_of_unknown_length(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    last = play.event("forest", 1)
    await connection.flush()
    fields = {"first": position_text((last.epoch, last.sequence + 1)), "last": None, "reason": "its node lost them"}
    gap = {"region": "forest", "position": None, "gap": fields}
    await connection.say("events", events=[gap])
    await play.reported(1, "gap")
    connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    play.event("forest", 2)
    await connection.flush()
    await play.reported(2)
