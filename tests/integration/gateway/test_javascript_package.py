"""The npm package of the JavaScript client, as projects install it."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from adapters.embedded.server import EmbeddedServer
from gamecast.version import __version__
from gateway.application import CLIENT
from tests.integration.gateway.test_gateway_javascript import node, printed
from tests.integration.gateway_clients import running_gateway
from tests.patience import scaled

ROOT = Path(__file__).parents[3]
PACKAGE = Path("clients", "javascript")
UNREACHABLE = re.compile(r"\b(?:E(?:NOTFOUND|AI_AGAIN|CONN\w+|TIMEDOUT|NETUNREACH|HOSTUNREACH)|FETCH_ERROR|network)\b")
GZIPPED_BYTES_MAX = 7200

PLAY = """
const game = connect(process.argv.at(-1), { name: process.argv.at(-2) });
const forest = game.subscription("forest");
const heard = new Promise((resolve) => forest.on("event", resolve));
const published = forest.subscribe().then(() => forest.publish({ type: "spell", power: 3 }));
Promise.all([heard, published]).then(([{ payload, sender }]) => {
  console.log(JSON.stringify([sender, payload, PROTOCOL_VERSION]));
  game.close();
});
"""
ESM = 'import { connect, PROTOCOL_VERSION } from "@gamecast/client";\n' + PLAY
CJS = 'const { connect, PROTOCOL_VERSION } = require("@gamecast/client");\n' + PLAY

TYPED = """
import { connect, GamecastError, type GamecastState, type Position } from "@gamecast/client";

interface Spell { type: "spell"; power: number }
interface Chat { type: "chat"; text: string; to?: string[] }
type Play = Spell | Chat;

export async function play(url: string): Promise<number> {
  const game = connect<Play>(url, { token: async () => "t" });
  game.on("status", (status, reason) => console.log(status === "waiting" ? reason?.message : status));
  game.on("error", (error) => console.log(error instanceof GamecastError ? error.code : error));
  let power = 0;
  const forest = game.subscription("forest", { since: 0 });
  forest.on("event", ({ payload }) => { if (payload.type === "spell") power += payload.power; });
  const positions: { [region: string]: Position } = await forest.subscribe();
  const chat = game.subscription<Chat>("chat");
  chat.on("event", async ({ payload, sender }) => console.log(sender, payload.text.length));
  await chat.publish({ type: "chat", text: "hi" });
  // @ts-expect-error - a spell is no chat
  await chat.publish({ type: "spell", power: 1 });
  // @ts-expect-error - an unknown field
  await game.publish("forest", { type: "spell", force: 1 });
  await game.publish(["forest", "river"], { type: "spell", power: 1 }, { key: "sword", onlyIf: null });
  // @ts-expect-error - there is no such event
  game.on("message", () => {});
  game.update("forest", "spell", { type: "spell", power: 2 });
  game.on("update", ({ key, payload, position }) => console.log(key, payload.type, position));
  await game.subscription("hall", { presence: { nick: "Ana" } }).subscribe();
  game.on("presence", ({ presence: { name, here, info } }) => console.log(name, here, info["nick"]));
  console.log(Object.keys(game.present("hall")));
  const page = await game.history("forest", { after: positions["forest"], limit: 10 });
  for (const item of page.events) if (!("gap" in item)) console.log(item.payload.type);
  for await (const item of game) {
    if ("gap" in item) console.log(item.gap.reason);
    else if (item.payload.type === "chat") console.log(item.payload.to?.join());
    else break;
  }
  const stateful = connect<Play, GamecastState<Play>>(url);
  for await (const item of stateful) if ("state" in item) console.log(item.state["sword"]?.payload?.type);
  const open = connect(url);
  open.on("event", ({ payload }) => { const unknown: unknown = payload; return void unknown; });
  await open.publish("forest", { any: ["JSON", 1] } satisfies object);
  return power;
}
"""

PAGE = '<!doctype html><title>game</title><script type="module" src="/main.js"></script>'


def npm() -> str:
    """Return the npm command, or skip."""
    node()
    found = shutil.which("npm")
    if found is None:
        pytest.skip("npm is not installed")
    return found


def run(*command: str | Path, cwd: Path, may_skip: bool = False) -> str:
    """Run a command, and return what it printed; skip if it needs npm's registry and cannot reach it."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=scaled(60), check=False)
    except subprocess.TimeoutExpired:
        if may_skip:
            pytest.skip("npm's registry does not answer in time")
        raise
    if may_skip and done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip("npm's registry cannot be reached")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tarball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack a copy of the package; the tree stays as it is."""
    tree = tmp_path_factory.mktemp("tree")
    for part in (PACKAGE, CLIENT.relative_to(ROOT)):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("dist", "node_modules"))
    shutil.copy(ROOT / "LICENSE", tree)
    run(npm(), "pack", "--pack-destination", tree, cwd=tree / PACKAGE)
    [packed] = tree.glob("*.tgz")
    return packed


def project(directory: Path, tarball: Path, *packages: str) -> Path:
    """Make a project that has the package and others."""
    directory.mkdir()
    (directory / "package.json").write_text(json.dumps({"name": directory.name, "private": True}))
    quiet = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "--fetch-retries=0")
    run(npm(), "install", *quiet, str(tarball), *packages, cwd=directory, may_skip=True)
    return directory


def test_its_version_and_its_files_are_those_of_gamecast(tarball: Path) -> None:
    about = json.loads((ROOT / PACKAGE / "package.json").read_text())
    number, kind, count = re.fullmatch(r"([\d.]+?)(?:\.?(a|b|rc|dev)(\d+))?", __version__).groups()  # type: ignore[union-attr]
    assert about["version"] == (f"{number}-{kind}.{count}" if kind else number)
    assert "dependencies" not in about
    dist = tarball.parent / PACKAGE / "dist"
    for name in ("gamecast.js", "gamecast.d.ts", "messages.d.ts"):
        assert (dist / name).read_bytes() == (CLIENT / name).read_bytes(), "the package is what the gateway serves"


async def test_node_loads_it_as_a_module_and_with_require(
    tarball: Path, tmp_path: Path, shared_redis: EmbeddedServer
) -> None:
    directory = project(tmp_path / "plain", tarball, "ws@8")
    (directory / "play.mjs").write_text(ESM)
    (directory / "play.cjs").write_text(CJS)
    async with running_gateway(shared_redis.url) as running:
        for name in ("mjs", "cjs"):
            found = await printed(node()[0], f"play.{name}", name, running.url, cwd=directory, seconds=30)
            assert found == [f"~{name}", {"type": "spell", "power": 3}, 1]


async def test_node_without_a_websocket_says_what_to_install(tarball: Path, tmp_path: Path) -> None:
    directory = project(tmp_path / "bare", tarball)
    script = """
    globalThis.WebSocket = undefined;
    const { connect } = await import("@gamecast/client");
    connect("ws://127.0.0.1:1").on("error", ({ code, message }) => console.log(JSON.stringify([code, message])));
    """
    (directory / "bare.mjs").write_text(script)
    code, message = await printed(node()[0], "bare.mjs", cwd=directory, seconds=30)
    assert code == "unsupported"
    assert "install ws" in message


async def test_esbuild_bundles_it_small_and_types_compile_with_own_events(
    tarball: Path, tmp_path: Path, shared_redis: EmbeddedServer
) -> None:
    directory = project(tmp_path / "bundled", tarball, "esbuild@0.25", "typescript@5.9")
    programs = directory / "node_modules" / ".bin"
    (directory / "play.mjs").write_text(ESM)
    run(programs / "esbuild", "play.mjs", "--bundle", "--format=esm", "--outfile=bundle.mjs", cwd=directory)
    assert "createRequire" not in (directory / "bundle.mjs").read_text()
    async with running_gateway(shared_redis.url) as running:
        found = await printed(*node(), "bundle.mjs", "bundle", running.url, cwd=directory, seconds=30)
    assert found == ["~bundle", {"type": "spell", "power": 3}, 1]

    (directory / "client.mjs").write_text('export * from "@gamecast/client";')
    small = run(programs / "esbuild", "client.mjs", "--bundle", "--minify", "--format=esm", cwd=directory)
    assert len(gzip.compress(small.encode(), 9)) <= GZIPPED_BYTES_MAX

    for name in ("typed.mts", "typed.cts"):
        (directory / name).write_text(TYPED)
    strict = ("--strict", "--noEmit", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes")
    target = ("--target", "es2022", "--lib", "es2022,dom,dom.iterable")
    for module, resolution in (("nodenext", "nodenext"), ("esnext", "bundler")):
        names = ("typed.mts", "typed.cts") if module == "nodenext" else ("typed.mts",)
        options = (*strict, *target, "--module", module, "--moduleResolution", resolution)
        run(programs / "tsc", *options, *names, cwd=directory)


async def test_vite_builds_it(tarball: Path, tmp_path: Path) -> None:
    directory = project(tmp_path / "built", tarball, "vite@7")
    (directory / "index.html").write_text(PAGE)
    (directory / "main.js").write_text(
        'import { connect } from "@gamecast/client";\n'
        'connect(location.origin).subscription("forest").on("event", console.log);\n'
    )
    environment = ("env", f"PATH={os.environ['PATH']}", "CI=1")
    run(*environment, directory / "node_modules" / ".bin" / "vite", "build", "--logLevel", "warn", cwd=directory)
    [built] = (directory / "dist" / "assets").glob("*.js")
    assert "gamecast.v" in built.read_text()
    assert "createRequire" not in built.read_text()
