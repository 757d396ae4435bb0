"""A small client of the gateway in Python, and its program for `gamecast gateway-conformance`: an example.

It has one loop: connect, resume, read until the connection ends. All that it must remember is in five fields.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import aiohttp

WAITS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
FINAL = {1003: "binary", 1009: "too-large", 4000: "malformed", 4003: "denied", 4009: "superseded"}
# There is one token, so no other can be had.
FINAL |= {4001: "unauthorized", 4010: "expired"}
MESSAGE_BYTES_MAX = 1 << 20


class Client:
    """A client that resumes, and retries what has no answer."""

    def __init__(self) -> None:
        self.positions: dict[str, str | None] = {}
        """Region → the position to resume from, None while none is known."""
        self.asked: dict[int, dict[str, Any]] = {}
        """Command → what was not answered yet, in order."""
        self.states: dict[str, dict[str, Any]] = {}
        self.acked: dict[str, str] = {}
        self.limits: dict[str, Any] = {}
        self.socket: aiohttp.ClientWebSocketResponse | None = None
        self.attempt = 0
        self.wait_s = 0.0

    async def run(self) -> None:
        """Connect again and again, until a close code is final."""
        async with aiohttp.ClientSession() as session:
            while True:
                try:
                    code = await self.connect(session)
                except (aiohttp.ClientError, OSError, TimeoutError, LookupError, TypeError, ValueError, AttributeError):
                    code = 1006
                self.socket = None
                if code in FINAL:
                    return report(status="closed", code=FINAL[code])
                report(status="waiting")
                await asyncio.sleep(max(self.wait_s, WAITS_S[min(self.attempt, len(WAITS_S) - 1)]))
                self.attempt, self.wait_s = self.attempt + 1, 0.0

    async def connect(self, session: aiohttp.ClientSession) -> int:
        """Serve one connection; return its close code."""
        hello = {"type": "hello", "protocol": 1, "message_bytes_max": MESSAGE_BYTES_MAX}
        hello |= {"token": os.environ["GAMECAST_TOKEN"], "name": os.environ["GAMECAST_NAME"]}
        async with session.ws_connect(
            os.environ["GAMECAST_URL"], protocols=["gamecast.v1"], max_msg_size=2 * MESSAGE_BYTES_MAX, timeout=CLOSE
        ) as socket:
            await socket.send_str(json.dumps(hello))
            heartbeat_s = 10.0
            while True:
                try:
                    message = await socket.receive(heartbeat_s)
                except TimeoutError:
                    await socket.send_str('{"type": "ping"}')
                    message = await socket.receive(heartbeat_s)
                if message.type is not aiohttp.WSMsgType.TEXT:
                    return socket.close_code or 1006
                said = json.loads(message.data)
                if said.get("type") == "welcome":
                    heartbeat_s, self.limits = said["heartbeat_ms"] / 1000, said["limits"]
                    self.socket = socket
                    report(status="open")
                    await self.resume()
                elif not await self.hear(said):
                    return 1006

    async def resume(self) -> None:
        """Name all regions with their positions in one message; then ask again for what was not answered."""
        since = {region: position for region, position in self.positions.items() if position is not None}
        if since:
            await self.send({"type": "subscribe", "id": "resume", "regions": list(since), "since": since})
        else:
            self.attempt = 0
        for command in list(self.asked.values()):
            await self.say(command)

    async def hear(self, said: dict[str, Any]) -> bool:
        """Take a message; return False to resume over another connection."""
        kind, answered = said.get("type"), said.get("id", 0)
        if kind == "events":
            for item in said["events"]:
                self.take(item)
        elif kind == "acks":
            for ack in said["acks"]:
                self.acked |= ack.get("positions") or {ack["region"]: ack["position"]}
                if self.asked.pop(ack["id"], None):
                    report(receipt=int(ack["id"]), region=ack["region"], position=ack["position"])
        elif kind == "subscribed":
            self.attempt = 0
            for region, position in said["regions"].items():
                if self.positions.get(region, "") is None:
                    self.positions[region] = position
            self.answer(answered)
        elif kind == "unsubscribed":
            self.answer(answered)
        elif kind == "error" and answered == "resume":
            report(error=said)
            self.wait_s = said.get("retry_after_ms", 0) / 1000
            if not said["retriable"]:
                self.positions.clear()
            return bool(not said["retriable"])
        elif kind == "error" and (command := self.asked.pop(answered, None)):
            if command["do"] == "subscribe":
                for region in command["regions"]:
                    if self.positions.get(region) is None:  # others stay joined
                        self.positions.pop(region, None)
            report(refused=command["id"], code=said["code"])
        elif kind == "error":
            report(error={"code": said["code"]})
        return True

    def take(self, item: dict[str, Any]) -> None:
        """Report an event, a gap or a state, and keep its positions."""
        if "state" in item:
            known = self.states.setdefault(item["region"], {}) if item.get("part") else {}
            self.states[item["region"]] = item["state"] = known | item["state"]
            if item.get("more"):
                return
        places = item.get("positions") or {item["region"]: item["position"]}
        for region, position in places.items():
            if region in self.positions and position is not None:
                self.positions[region] = position
        report(**{"state" if "state" in item else "gap" if "gap" in item else "event": item})

    def answer(self, answered: Any) -> None:
        """Report that a command is done; the answer to a resume is also that to the subscribes in it."""
        for number, command in list(self.asked.items()):
            regions = command.get("regions", ())
            is_resumed = answered == "resume" and command["do"] == "subscribe" and not command.get("is_new")
            if number == answered or (is_resumed and all(self.positions.get(region) for region in regions)):
                del self.asked[number]
                report(done=number)

    async def carry_out(self, command: dict[str, Any]) -> None:
        """Begin a command."""
        if command["do"] == "subscribe":
            for region in command["regions"]:
                self.positions.setdefault(region, None)
        elif command["do"] == "unsubscribe":
            for region in command["regions"]:
                self.positions.pop(region, None)
        elif self.is_too_large(command):
            return report(refused=command["id"], code="too-large")
        self.asked[command["id"]] = command
        if self.socket is not None:
            await self.say(command)
        return None

    def is_too_large(self, command: dict[str, Any]) -> bool:
        """Whether a publish is over the gateway's limits."""
        payload = command.get("payload")
        size = len(written(payload)) if "base64" not in command else len(command["base64"]) * 3 // 4 - 2
        over = len(written(self.message(command))) > self.limits.get("message_bytes", 1 << 40)
        return over or bool(size > self.limits.get("payload_bytes", 1 << 40))

    async def say(self, command: dict[str, Any]) -> None:
        """Send a command; a publish that was sent before is a retry."""
        message = self.message(command)
        if command["do"] == "publish":
            region = command.get("region") or command["regions"][0]
            if command.get("is_sent") and command.get("after") is None:
                del self.asked[command["id"]]
                return report(refused=command["id"], code="uncertain")
            if command.get("is_sent"):
                message |= {"retry": True, "after": command["after"]}
            else:
                command |= {"is_sent": True, "after": self.latest(region)}
        elif command["do"] == "subscribe" and all(self.positions.get(region) for region in command["regions"]):
            return None  # it was resumed
        return await self.send(message)

    def latest(self, region: str) -> str | None:
        """The later position of a region, of an event or an ack."""
        known = [at for at in (self.positions.get(region), self.acked.get(region)) if at is not None]
        return max(known, key=lambda at: [int(number) for number in at.split("-")], default=None)

    @staticmethod
    def message(command: dict[str, Any]) -> dict[str, Any]:
        """The message of a command."""
        left_out = ("do", "is_sent", "after")
        return {"type": command["do"]} | {name: value for name, value in command.items() if name not in left_out}

    async def send(self, message: dict[str, Any]) -> None:
        """Send a message if there is a connection."""
        if self.socket is not None and not self.socket.closed:
            try:
                await self.socket.send_str(written(message).decode())
            except ConnectionError:
                return


CLOSE = aiohttp.ClientWSTimeout(ws_close=0.5)


def written(value: Any) -> bytes:
    """JSON as the gateway counts it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def report(**line: Any) -> None:
    """Report something to the kit."""
    print(json.dumps(line), flush=True)


async def main() -> None:
    """Carry out the commands of standard input."""
    client, reader = Client(), asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running = asyncio.create_task(client.run())
    report(ready="the example in Python")
    async for line in reader:
        command = json.loads(line)
        if command["do"] == "close":
            break
        await client.carry_out(command)
    if client.socket is not None:
        await client.socket.close()
    running.cancel()


if __name__ == "__main__":
    asyncio.run(main())
