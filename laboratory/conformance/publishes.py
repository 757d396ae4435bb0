"""Scenarios: publishes, their answers, and retries."""

from __future__ import annotations

import base64

from gateway.messages import Publish, Subscribe
from gateway.refusal import Code
from gateway.settings import GatewayLimits
from laboratory.conformance.playing import NAME, Play, Scenarios
from laboratory.conformance.server import Connection

PUBLISHES = Scenarios()


@PUBLISHES.add("publishes have receipts with their positions, and come back as events")
async def publish(play: Play) -> None:
    await play.connected()
    await play.do("subscribe", regions=["forest"])
    numbers = [
        play.ask("publish", region="forest", payload={"mine": number, "text": "grüße ✓"}) for number in range(50)
    ]
    numbers.append(play.ask("publish", region="river", payload={"elsewhere": True}))
    await play.answered(*numbers)
    await play.reported(50)


@PUBLISHES.add("bytes are published as base64")
async def publish_bytes(play: Play) -> None:
    await play.connected()
    await play.do("subscribe", regions=["forest"])
    await play.do("publish", region="forest", base64=base64.b64encode(bytes(range(256))).decode())
    await play.reported(1)


@PUBLISHES.add("an event of several regions is published in one message")
async def publish_joint(play: Play) -> None:
    await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    await play.do("publish", regions=["forest", "river"], payload={"both": True})
    await play.reported(1)


@PUBLISHES.add("a publish that the gateway refuses is reported with the code, and the others go on")
async def publish_refused(play: Play) -> None:
    async def guard(connection: Connection, message: Publish) -> None:
        if message.region == "secret":
            await connection.refuse(message, Code.FORBIDDEN)
        else:
            await connection.answer(message)

    play.server.on[Publish] = guard
    await play.connected()
    await play.do("subscribe", regions=["forest"])
    first = play.ask("publish", region="forest", payload=1)
    refused = play.ask("publish", region="secret", payload=2, refusal=Code.FORBIDDEN)
    last = play.ask("publish", region="forest", payload=3)
    await play.answered(first, refused, last)
    await play.reported(2)


@PUBLISHES.add("an event over the latest welcome's limits is refused by the client, and not sent")
async def too_large(play: Play) -> None:
    play.server.limits = GatewayLimits(message_bytes_max=400, payload_bytes_max=100)
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    code = Code.TOO_LARGE
    await play.do("publish", region="forest", payload="x" * 99, refusal=code, is_local=True)  # with quotes, 101 bytes
    await play.do("publish", region="forest", payload="ü" * 50, refusal=code, is_local=True)
    await play.do("publish", region="f" * 390, payload=1, refusal=code, is_local=True)
    await play.do("publish", region="forest", payload="x" * 98)
    await play.do("publish", region="forest", payload="ü" * 49)
    await play.reported(2)
    play.server.limits = GatewayLimits(message_bytes_max=400, payload_bytes_max=50)
    connection.reset()
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    await play.do("publish", region="forest", payload="x" * 60, refusal=code, is_local=True)


@PUBLISHES.add("a publish whose ack was lost is sent again as a retry, in order, and is published once")
async def retry(play: Play) -> None:
    async def lose_acks(connection: Connection, message: Publish) -> None:
        if message.payload == {"mine": 3}:
            play.server.on.pop(Publish)
            await play.reported(3 + 3)
            connection.reset()
        elif message.payload == {"mine": 0}:
            await connection.answer(message)
        elif connection.is_open:
            connection.accept(message)
            await connection.flush()  # it comes back, and its ack does not

    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.events(3, "forest")
    await connection.flush()
    await play.reported(3)
    play.server.on[Publish] = lose_acks
    first = play.ask("publish", region="forest", payload={"mine": 0})
    await play.answered(first)
    numbers = [play.ask("publish", region="forest", payload={"mine": number}) for number in (1, 2, 3, 4)]
    await play.connected()
    await play.answered(*numbers)
    await play.do("publish", region="forest", payload={"mine": 5})
    await play.reported(3 + 6)


@PUBLISHES.add(
    "a retry is looked for behind the events that the client had: an equal one from before is not taken for it"
)
async def retry_behind_an_equal_event(play: Play) -> None:
    async def lose(connection: Connection, message: Publish) -> None:
        play.server.on.pop(Publish)
        connection.reset()

    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    play.event("forest", {"jump": True}, sender=f"~{NAME}")
    await connection.flush()
    await play.reported(1)
    play.server.on[Publish] = lose
    number = play.ask("publish", region="forest", payload={"jump": True})
    await play.connected()
    await play.answered(number)
    await play.reported(2)


@PUBLISHES.add("a retry is looked for behind the acks that the client had, in each region of an event")
async def retry_behind_an_ack(play: Play) -> None:
    async def acknowledge(connection: Connection, message: Publish) -> None:
        await connection.ack(message, connection.accept(message))  # it does not come back yet

    async def lose(connection: Connection, message: Publish) -> None:
        if message.region == "river":
            play.server.on[Publish] = acknowledge
            connection.reset()

    await play.connected()
    await play.do("subscribe", regions=["forest", "river"])
    play.server.on[Publish] = acknowledge
    for number in range(5):
        await play.do("publish", region="forest", payload={"mine": number})
    await play.do("publish", regions=["forest", "river"], payload={"both": True})
    play.server.on[Publish] = lose
    lost = [play.ask("publish", region=region, payload={"lost": region}) for region in ("forest", "river")]
    await play.connected()
    await play.answered(*lost)
    await play.server.last.flush()
    await play.reported(5 + 1 + 2)


@PUBLISHES.add("publishes of a time without a connection are sent when there is one, in order")
async def publish_while_away(play: Play) -> None:
    connection = await play.connected()
    await play.do("subscribe", regions=["forest"])
    connection.reset()
    numbers = [play.ask("publish", region="forest", payload={"mine": number}) for number in range(10)]
    connection = await play.connected()
    await play.heard(connection, Subscribe)
    await play.answered(*numbers)
    await play.reported(10)


@PUBLISHES.add("a publish with a lost ack in a region that the client does not follow is uncertain, or published once")
async def retry_without_position(play: Play) -> None:
    async def lose(connection: Connection, message: Publish) -> None:
        play.server.on.pop(Publish)
        connection.accept(message)
        connection.reset()

    await play.connected()
    play.server.on[Publish] = lose
    number = play.ask("publish", region="forest", payload={"mine": 1}, refusal="uncertain")
    await play.connected()
    await play.answered(number)
