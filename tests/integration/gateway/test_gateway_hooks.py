"""Hooks of the gateway: a real backend over HTTP decides who connects, subscribes and publishes, or does not answer."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from click.testing import CliRunner

from adapters.embedded.server import EmbeddedServer
from cli.main import cli
from gateway.access import ClientAccess
from gateway.application import make_application
from gateway.audit import AuditLog
from gateway.guard import Guard
from gateway.replaycache import RedisReplayCache
from gateway.serving import serving
from gateway.settings import GatewayLimits, GatewaySettings, HookName, HookSettings, WhenDown
from gateway.tokens import KeyFile, Keys, mint
from sequencing.errors import UsageError
from tests.integration.gateway.test_gateway_javascript import CLIENT, node
from tests.integration.gateway_clients import Running, Socket, listening
from tests.patience import patience

SECRET = b"a secret of the game and its gateway"
ALL: tuple[HookName, ...] = ("connect", "subscribe", "publish")
Answer = Callable[[dict[str, Any]], Any]


class Backend:
    """A game's backend. ``answers``: hook → what it answers; by default it allows all."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.under_way = self.under_way_max = 0
        self.answers: dict[str, Answer] = {}
        self.delay_s: Callable[[dict[str, Any]], float] = lambda question: 0.0

    @asynccontextmanager
    async def listening(self, held: socket.socket | None = None) -> AsyncIterator[None]:
        application = web.Application()
        application.router.add_post("/hooks/{hook}", self._hook)
        async with listening(application, held) as self.url:
            yield

    def of(self, hook: str) -> list[dict[str, Any]]:
        return [question for question in self.asked if question["hook"] == hook]

    async def _hook(self, request: web.Request) -> web.Response:
        body = await request.read()
        time_text, _, signed = request.headers["Gamecast-Signature"].partition(",v1=")
        expected = hmac.new(SECRET, time_text.removeprefix("t=").encode() + b"." + body, hashlib.sha256).hexdigest()
        assert hmac.compare_digest(signed, expected)
        question = orjson.loads(body)
        assert question["hook"] == request.match_info["hook"]
        self.asked.append(question)
        self.under_way += 1
        self.under_way_max = max(self.under_way_max, self.under_way)
        try:
            await asyncio.sleep(self.delay_s(question))
        finally:
            self.under_way -= 1
        decide = self.answers.get(question["hook"])
        answer = {"allow": True} if decide is None else decide(question)
        return answer if isinstance(answer, web.Response) else web.json_response(answer)


@pytest.fixture
async def backend() -> AsyncIterator[Backend]:
    backend = Backend()
    async with backend.listening():
        yield backend


def minted(keys_file: Path, **claims: Any) -> str:
    told = {"read": ["arena/*"], "write": ["arena/*"]} | claims
    return mint(Keys.read(keys_file).signer(), subject="alice", **told)


@asynccontextmanager
async def hooked(
    redis_url: str,
    backend: Backend,
    *hooks: HookName,
    keys_file: Path | None = None,
    when_down: WhenDown = "deny",
    **limits: Any,
) -> AsyncIterator[Running]:
    """A gateway whose hooks, all unless some are named, are those of the backend."""
    urls: dict[HookName, str] = {name: f"{backend.url}/hooks/{name}" for name in hooks or ALL}
    settings = GatewaySettings(
        limits=GatewayLimits(**limits), hooks=HookSettings(urls=urls, secret=SECRET, when_down=when_down)
    )
    replay_cache, audit = RedisReplayCache(redis_url), StringIO()
    guard = Guard(settings, replay_cache, keys=KeyFile(keys_file) if keys_file is not None else None)
    application = make_application(
        ClientAccess(redis_url), settings, guard=guard, replay_cache=replay_cache, audit=AuditLog(audit), extensions=()
    )
    async with serving(application) as url:
        yield Running(url, application, audit)


def metric(running: Running, line: str) -> float:
    """Return the value of a metric with its labels; 0 if there is none yet."""
    for each in running.gateway.metrics.text().decode().splitlines():
        if each.startswith(line + " "):
            return float(each.rpartition(" ")[2])
    return 0.0


async def refused_hello(url: str, **hello: Any) -> tuple[dict[str, Any], tuple[int | None, str]]:
    async with aiohttp.ClientSession() as client, client.ws_connect(url + "/v1/socket") as raw:
        socket = Socket(raw)
        await socket.say(type="hello", **hello)
        return await socket.hear("error"), await socket.closed()


async def test_each_hook_gets_who_asks_and_what_for(
    shared_redis: EmbeddedServer, backend: Backend, keys_file: Path
) -> None:
    token = minted(keys_file)
    async with (
        hooked(shared_redis.url, backend, keys_file=keys_file) as running,
        Socket.open(running.url, token=token, name="alice~phone") as socket,
    ):
        await socket.subscribe("arena/1", "arena/2")
        assert (await socket.publish("arena/1", {"spell": "fire"}, id=1))["type"] == "ack"
        await socket.say(type="publish", id=2, region="arena/2", base64="3q2+7w==")
        assert (await socket.reply(2))["type"] == "ack"
        assert metric(running, 'gamecast_gateway_hook_calls_total{hook="publish",outcome="allowed"}') == 2
    session = socket.welcome["session"]
    for question in backend.asked:
        claims = question.pop("claims")
        assert claims["sub"] == "alice"
        assert claims["write"] == ["arena/*"]
        assert token not in str(question)
    same = {"gateway": socket.welcome["gateway"], "transport": "websocket", "session": session, "name": "~alice~phone"}
    same |= {"peer": "127.0.0.1", "subject": "alice"}
    assert backend.asked == [
        {"hook": "connect", **same},
        {"hook": "subscribe", **same, "regions": ["arena/1", "arena/2"]},
        {"hook": "publish", **same, "region": "arena/1", "retry": False, "payload": {"spell": "fire"}},
        {"hook": "publish", **same, "region": "arena/2", "retry": False, "base64": "3q2+7w=="},
    ]


async def test_what_the_backend_denies_is_refused_with_its_reason(
    shared_redis: EmbeddedServer, backend: Backend
) -> None:
    async with hooked(shared_redis.url, backend) as running:
        backend.answers["connect"] = lambda question: {"allow": question["name"] != "~mallory", "reason": "banned"}
        error, closed = await refused_hello(running.url, name="mallory")
        assert (error["code"], error["message"], error["retriable"], error["definite"]) == (
            "denied",
            "banned",
            False,
            True,
        )
        assert closed == (4003, "banned")
        backend.answers["subscribe"] = lambda question: {"allow": "secret" not in question["regions"]}
        backend.answers["publish"] = lambda question: {"allow": question["payload"] != "curse", "reason": "no curses"}
        async with Socket.open(running.url, name="alice") as socket:
            await socket.say(type="subscribe", id=1, regions=["forest", "secret"])
            error = await socket.reply(1)
            assert (error["code"], error["message"]) == ("denied", "the game does not allow it")
            await socket.subscribe("forest")
            error = await socket.publish("forest", "curse", id=2)
            assert (error["code"], error["message"], error["definite"]) == ("denied", "no curses", True)
            assert (await socket.publish("forest", "hello", id=3))["type"] == "ack"
            assert [event["payload"] for event in await socket.take(1)] == ["hello"]
        assert (await running.is_noted("refused", code="denied"))["reason"] == "banned"
        assert metric(running, 'gamecast_gateway_hook_calls_total{hook="connect",outcome="denied"}') == 1


async def test_requests_and_event_streams_are_asked_about_too(shared_redis: EmbeddedServer, backend: Backend) -> None:
    backend.answers["publish"] = lambda question: {"allow": question["payload"] != 2, "reason": "not this one"}
    backend.answers["subscribe"] = lambda question: {"allow": "secret" not in question["regions"]}
    async with hooked(shared_redis.url, backend) as running, aiohttp.ClientSession(running.url) as client:
        events = [{"region": "batch", "payload": number} for number in range(4)]
        async with client.post("/v1/events", json={"events": events}) as response:
            assert response.status == 207
            results = (await response.json())["results"]
        assert [result.get("error", {}).get("code") for result in results] == [None, None, "denied", None]
        async with client.post("/v1/regions/batch/events", json={"payload": 2}) as response:
            assert (response.status, (await response.json())["error"]["message"]) == (403, "not this one")
        async with client.get("/v1/regions/batch/events") as response:
            assert [event["payload"] for event in (await response.json())["events"]] == [0, 1, 3]
        for path in ("/v1/regions/secret/events", "/v1/events?region=secret"):
            async with client.get(path) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (403, "denied")
        backend.answers["connect"] = lambda question: {"allow": False, "reason": "closed for today"}
        async with client.get("/v1/events?region=batch") as response:
            assert (response.status, (await response.json())["error"]["message"]) == (403, "closed for today")
    assert {question["transport"] for question in backend.asked} == {"http", "history", "stream"}


async def test_the_backend_gives_regions_data_and_another_payload(
    shared_redis: EmbeddedServer, backend: Backend, keys_file: Path
) -> None:
    backend.answers["connect"] = lambda question: {"allow": True, "subscribe": ["arena/7"], "data": {"level": 3}}
    backend.answers["publish"] = lambda question: {"allow": True, "payload": {"by": "backend", **question["payload"]}}
    async with (
        hooked(shared_redis.url, backend, keys_file=keys_file) as running,
        Socket.open(running.url, token=minted(keys_file)) as socket,
    ):
        assert (socket.welcome["subscribe"], socket.welcome["data"]) == (["arena/7"], {"level": 3})
        await socket.subscribe(*socket.welcome["subscribe"])
        await socket.publish("arena/7", {"hit": 5})
        assert [event["payload"] for event in await socket.take(1)] == [{"by": "backend", "hit": 5}]
        backend.answers["publish"] = lambda question: {"allow": True, "base64": "3q2+7w=="}
        await socket.publish("arena/7", {"hit": 6})
        assert (await socket.take(2))[1]["base64"] == "3q2+7w=="


async def test_a_retry_of_an_event_whose_payload_the_backend_replaced_is_published_once(
    shared_redis: EmbeddedServer, backend: Backend
) -> None:
    backend.answers["publish"] = lambda question: {"allow": True, "payload": [question["payload"], "checked"]}
    async with hooked(shared_redis.url, backend, keep_s=0.01) as running:
        async with Socket.open(running.url, name="carol") as first:
            after = (await first.subscribe("retried"))["regions"]["retried"]
            ack = await first.publish("retried", "once", id=1)
            first.drop()
        async with Socket.open(running.url, name="carol") as second:
            await second.subscribe("retried", since={"retried": after})
            again = await second.publish("retried", "once", id=1, retry=True, after=after)
            assert (again["position"], again["repeated"]) == (ack["position"], True)
            backend.answers["publish"] = lambda question: {"allow": False}
            error = await second.publish("retried", "once", id=2, retry=True, after=after)
            assert (error["code"], error["definite"]) == ("denied", False)


async def test_events_of_a_session_keep_their_order_while_the_backend_is_asked(
    shared_redis: EmbeddedServer, backend: Backend
) -> None:
    # The earlier an event comes, the longer the backend takes; every fifth is denied.
    backend.delay_s = lambda question: 0.06 - 0.02 * (question["payload"] % 3)
    backend.answers["publish"] = lambda question: {"allow": question["payload"] % 5 != 0}
    async with (
        hooked(shared_redis.url, backend, "publish") as running,
        Socket.open(running.url, name="dave") as socket,
    ):
        await socket.subscribe("ordered")
        for number in range(40):
            await socket.say(type="publish", id=number, region="ordered", payload=number)
        events = await socket.take(32)
        assert [event["payload"] for event in events] == [number for number in range(40) if number % 5]
        assert 1 < backend.under_way_max <= 10


async def test_a_slow_backend_is_waited_for_until_the_time_out(shared_redis: EmbeddedServer, backend: Backend) -> None:
    async with (
        hooked(shared_redis.url, backend, hook_timeout_s=0.3) as running,
        Socket.open(running.url, name="erin") as socket,
    ):
        backend.delay_s = lambda question: 0.0 if question["hook"] != "publish" or question["payload"] == "fast" else 5
        error = await socket.publish("slow", "late", id=1)
        assert (error["code"], error["retriable"], error["definite"]) == ("backend-down", True, True)
        assert (await socket.publish("slow", "fast", id=2))["type"] == "ack"
        assert metric(running, 'gamecast_gateway_hook_failures_total{hook="publish",reason="timeout"}') == 1


@pytest.mark.parametrize("when_down", ["deny", "allow"])
async def test_while_the_backend_is_down_the_operator_s_choice_holds_and_the_breaker_opens(
    shared_redis: EmbeddedServer, held_port: socket.socket, when_down: WhenDown
) -> None:
    backend = Backend()
    backend.url = f"http://127.0.0.1:{held_port.getsockname()[1]}"
    async with hooked(shared_redis.url, backend, when_down=when_down, hook_failures_max=3, hook_pause_s=0.5) as running:
        if when_down == "deny":
            error, closed = await refused_hello(running.url, name="frank")
            assert (error["code"], error["retriable"], closed[0]) == ("backend-down", True, 1013)
        async with aiohttp.ClientSession(running.url) as client:

            async def status() -> int:
                async with client.post("/v1/regions/down/events", json={"payload": 1}) as response:
                    return response.status

            expected = 503 if when_down == "deny" else 200
            assert [await status() for _ in range(5)] == [expected] * 5
            failures = "gamecast_gateway_hook_failures_total"
            assert metric(running, failures + '{hook="publish",reason="connection"}') >= 3
            async with patience(10):
                while not metric(running, failures + '{hook="publish",reason="breaker-open"}'):
                    assert await status() == expected
            async with backend.listening(held_port), patience(10):
                backend.answers["publish"] = lambda question: {"allow": False}
                while await status() != 403:  # noqa: ASYNC110 - the breaker lets one call try, and closes
                    await asyncio.sleep(0.05)
                assert metric(running, 'gamecast_gateway_hook_breaker{hook="publish"}') == 0
                backend.answers.clear()
                assert await status() == 200


async def test_an_open_breaker_spares_the_backend(shared_redis: EmbeddedServer, backend: Backend) -> None:
    backend.answers["publish"] = lambda question: web.Response(status=500)
    async with (
        hooked(shared_redis.url, backend, "publish", hook_failures_max=3, hook_pause_s=60) as running,
        aiohttp.ClientSession(running.url) as client,
    ):
        for _ in range(10):
            async with client.post("/v1/regions/spared/events", json={"payload": 1}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (503, "backend-down")
        assert len(backend.asked) == 3
        assert metric(running, 'gamecast_gateway_hook_breaker{hook="publish"}') == 1
        assert metric(running, 'gamecast_gateway_hook_failures_total{hook="publish",reason="breaker-open"}') == 7


@pytest.mark.parametrize("when_down", ["deny", "allow"])
async def test_a_refusal_of_one_question_says_nothing_about_the_backend(
    shared_redis: EmbeddedServer, backend: Backend, when_down: WhenDown
) -> None:
    def answer(question: dict[str, Any]) -> Any:
        return web.Response(status=413) if question["payload"] == "curse" else {"allow": True}

    backend.answers["publish"] = answer
    async with (
        hooked(shared_redis.url, backend, "publish", when_down=when_down, hook_failures_max=3) as running,
        aiohttp.ClientSession(running.url) as client,
    ):

        async def status(payload: str) -> int:
            async with client.post("/v1/regions/forest/events", json={"payload": payload}) as response:
                return response.status

        assert [await status("curse") for _ in range(6)] == [503] * 6
        assert await status("kind") == 200


async def test_no_more_calls_are_under_way_than_allowed(shared_redis: EmbeddedServer, backend: Backend) -> None:
    backend.delay_s = lambda question: 0.05
    async with (
        hooked(shared_redis.url, backend, "publish", hook_calls_max=3, hook_timeout_s=5) as running,
        aiohttp.ClientSession(running.url) as client,
    ):
        events = {"events": [{"region": "many", "payload": number} for number in range(12)]}
        statuses = await asyncio.gather(*(_status(client, events) for _ in range(3)))
        assert statuses == [200] * 3
        assert backend.under_way_max == 3


async def _status(client: aiohttp.ClientSession, events: dict[str, Any]) -> int:
    async with client.post("/v1/events", json=events) as response:
        return response.status


@pytest.mark.parametrize("when_down", ["deny", "allow"])
@pytest.mark.parametrize(
    ("hook", "answer"),
    [
        ("connect", {"allow": True, "subscribe": "arena/1"}),
        ("connect", {"allow": True, "subscribe": ["lobby"]}),
        ("connect", []),
        ("publish", {"allow": "yes"}),
        ("publish", {"allow": False, "reason": 7}),
        ("publish", {"allow": True, "payload": 1, "base64": "AA=="}),
        ("publish", {"allow": True, "base64": "?"}),
        ("publish", {"allow": True, "payload": "x" * 2_000}),
        ("publish", {"allow": True, "padding": "x" * 20_000}),
        ("publish", web.Response),
    ],
)
async def test_an_answer_that_makes_no_sense_allows_nothing(
    shared_redis: EmbeddedServer, backend: Backend, keys_file: Path, when_down: WhenDown, hook: HookName, answer: Any
) -> None:
    backend.answers[hook] = lambda question: answer(text="<html>") if answer is web.Response else answer
    token = minted(keys_file)
    async with hooked(
        shared_redis.url,
        backend,
        keys_file=keys_file,
        when_down=when_down,
        payload_bytes_max=1_000,
        message_bytes_max=10_000,
    ) as running:
        if hook == "connect":
            error, _ = await refused_hello(running.url, token=token)
        else:
            async with Socket.open(running.url, token=token) as socket:
                error = await socket.publish("arena/1", 1)
        assert (error["code"], "an invalid answer" in error["message"]) == ("backend-down", True)
        assert metric(running, f'gamecast_gateway_hook_failures_total{{hook="{hook}",reason="nonsense"}}') == 1


async def test_redirects_of_the_backend_are_not_followed(shared_redis: EmbeddedServer, backend: Backend) -> None:
    elsewhere = Backend()
    async with elsewhere.listening(), hooked(shared_redis.url, backend) as running:
        backend.answers["connect"] = lambda question: web.Response(
            status=307, headers={"Location": f"{elsewhere.url}/hooks/connect"}
        )
        error, _ = await refused_hello(running.url)
        assert error["code"] == "backend-down"
        assert elsewhere.asked == []
        assert metric(running, 'gamecast_gateway_hook_failures_total{hook="connect",reason="status-3xx"}') == 1


def test_wrong_hooks_are_refused_at_the_start(shared_redis: EmbeddedServer, tmp_path: Path) -> None:
    for url in ("ftp://game.example", "game.example/hooks", "http://", "http://[::1/hooks", "http://game/#a"):
        with pytest.raises(UsageError, match="the connect hook needs a URL like"):
            HookSettings(urls={"connect": url}, secret=SECRET)
    secret = tmp_path / "hook.secret"
    secret.write_text("short\n")
    for options, said in (
        (["--hook-publish", "http://game.example"], "hooks need --hook-secret"),
        (["--hook-secret", str(secret)], "--hook-secret signs hook calls"),
        (["--hook-publish", "http://game.example", "--hook-secret", str(secret)], "fewer than 16"),
        (
            ["--hook-publish", "http://game.example", "--hook-secret", str(tmp_path / "none")],
            "cannot read the hook secret",
        ),
    ):
        result = CliRunner().invoke(cli, ["gateway", shared_redis.url, "--port", "0", *options])
        assert isinstance(result.exception, UsageError)
        assert said in str(result.exception)


async def test_a_gateway_process_asks_the_backend_that_its_options_name(
    shared_redis: EmbeddedServer, backend: Backend, tmp_path: Path
) -> None:
    secret = tmp_path / "hook.secret"
    secret.write_bytes(SECRET + b"\n")
    secret.chmod(0o600)
    backend.answers["publish"] = lambda question: {"allow": False, "reason": "not here"}
    options = "--hook-publish", f"{backend.url}/hooks/publish", "--hook-secret", str(secret)
    async with (
        running_process(shared_redis.url, *options) as url,
        aiohttp.ClientSession(url) as client,
        patience(30),
    ):
        status, answer = 503, {}
        while status == 503:  # a busy machine answers later than the gateway waits
            async with client.post("/v1/regions/process/events", json={"payload": 1}) as response:
                status, answer = response.status, await response.json()
        assert (status, answer["error"]["message"]) == (403, "not here")


@asynccontextmanager
async def running_process(redis_url: str, *options: str) -> AsyncIterator[str]:
    """Run a gateway as a process of its own; the value is its URL."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gamecast", "gateway", redis_url, "--port", "0", *options, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = b""
    try:
        async with patience(30):
            while (found := re.search(rb"listens at (http://\S+)", said)) is None:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
        yield found[1].decode()
    finally:
        if process.returncode is None:
            process.terminate()
        async with patience(20):
            said += await process.stderr.read()
            await process.wait()
    assert process.returncode == 0, said.decode()


async def test_the_javascript_client_follows_what_the_backend_says(
    shared_redis: EmbeddedServer, backend: Backend, tmp_path: Path
) -> None:
    backend.answers["connect"] = lambda question: {
        "allow": question["name"] == "~joy",
        "reason": "banned",
        "subscribe": ["js/lobby"],
        "data": {"level": 3},
    }
    async with hooked(shared_redis.url, backend) as running:
        script = tmp_path / "run.mjs"
        script.write_text(
            f"""
            import {{ connect }} from {json.dumps((CLIENT / "gamecast.js").as_uri())};
            const joy = connect({json.dumps(running.url)}, {{ name: "joy" }});
            const mallory = connect({json.dumps(running.url)}, {{ name: "mallory" }});
            const banned = await mallory[Symbol.asyncIterator]().next().catch((error) => error);
            while (!joy.positions["js/lobby"]) await new Promise((done) => setTimeout(done, 10));
            await joy.publish("js/lobby", "hi");
            const {{ value: event }} = await joy[Symbol.asyncIterator]().next();
            console.log(JSON.stringify([joy.data, event.payload, banned.code, banned.message]));
            joy.close();
            """
        )
        process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=asyncio.subprocess.PIPE)
        async with patience(30):
            out, _ = await process.communicate()
    assert json.loads(out) == [{"level": 3}, "hi", "denied", "banned"]


async def test_a_session_outlasts_a_backend_that_is_down(
    shared_redis: EmbeddedServer, held_port: socket.socket
) -> None:
    backend = Backend()
    backend.url = f"http://127.0.0.1:{held_port.getsockname()[1]}"
    async with (
        hooked(shared_redis.url, backend, "publish", requests_per_s=1, burst_requests=5, hook_pause_s=0.2) as running,
        Socket.open(running.url, name="grace") as socket,
    ):
        await socket.subscribe("outlasted")
        for number in range(500):  # more refusals than a client at fault may cause
            await socket.say(type="publish", id=number, region="outlasted", payload=number)
        assert (await socket.reply(499))["code"] == "backend-down"
        async with backend.listening(held_port), patience(10):
            while (await socket.publish("outlasted", "again", id=500))["type"] != "ack":  # noqa: ASYNC110 - the pause ends
                await asyncio.sleep(0.05)
        assert [event["payload"] for event in await socket.take(1)] == ["again"]


async def test_the_javascript_client_resumes_when_the_backend_is_back(
    shared_redis: EmbeddedServer, backend: Backend, tmp_path: Path
) -> None:
    async with hooked(shared_redis.url, backend, hook_pause_s=0.1) as running:
        script = tmp_path / "run.mjs"
        script.write_text(
            f"""
            import {{ connect }} from {json.dumps((CLIENT / "gamecast.js").as_uri())};
            const joy = connect({json.dumps(running.url)}, {{ name: "joy" }});
            await joy.subscribe("js/resumed");
            console.log("subscribed");
            const {{ value: event }} = await joy[Symbol.asyncIterator]().next();
            console.log(event.payload);
            joy.close();
            """
        )
        process = await asyncio.create_subprocess_exec(*node(), str(script), stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        async with patience(30):
            assert await process.stdout.readline() == b"subscribed\n"
            backend.answers["subscribe"] = lambda question: web.Response(status=503)
            for session in list(running.gateway.sessions):
                session.leave(1001, "go on in a new session")
            await running.is_noted("refused", code="backend-down")
            async with Socket.open(running.url, name="other") as socket:
                await socket.publish("js/resumed", "missed")
            backend.answers.clear()
            out, _ = await process.communicate()
    assert out == b"missed\n"
