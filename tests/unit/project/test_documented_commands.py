"""Each command that a page shows exists, with each of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli.main import cli

ROOT = Path(__file__).parents[3]
PAGES = [
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name != "commands.md"),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")),
    *sorted((ROOT / "clients").glob("*/README.md")),
]
FENCED = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def shown(page: Path) -> Iterator[str]:
    """Yield the commands of a page: lines of its blocks, and what stands between backticks."""
    text = page.read_text(encoding="utf-8")
    lines: list[str] = []
    for kind, block in FENCED.findall(text):
        if kind in ("sh", "console", "text", ""):
            lines += block.replace("\\\n", " ").splitlines()
    prose = FENCED.sub("", text)
    lines += re.findall(r"^    (\S.*)$", prose, re.MULTILINE)
    for line in lines:
        found = re.match(r"\s*(?:\$ )?((?:gamecast|\./dev) .*)", line)
        if found:
            yield found[1]
    for inline in re.findall(r"`((?:gamecast|\./dev)\s[^`]+)`", prose):
        yield " ".join(inline.split())


def words(command: str) -> list[str]:
    plain = re.split(r" #|\s[|>&<]|\s&&|…", command)[0]
    try:
        return shlex.split(plain)
    except ValueError:
        return plain.split()


def wrong(command: str) -> str | None:
    """Return what is wrong with a command."""
    program, *rest = words(command)
    if program == "./dev":
        return dev_wrong(rest)
    current: click.Command = cli
    context = click.Context(cli, info_name="gamecast")
    while rest and isinstance(current, click.Group) and not rest[0].startswith("-"):
        if not re.fullmatch(r"[a-z][a-z-]*", rest[0]):
            return None  # a placeholder
        below = current.get_command(context, rest[0])
        if below is None:
            return f"there is no {' '.join([program, rest[0]])}"
        current, rest = below, rest[1:]
    known = {name for each in current.params for name in (*each.opts, *each.secondary_opts)} | {"--help", "-h"}
    if isinstance(current, click.Group) and current is cli:
        known.add("--version")
    if current.context_settings.get("ignore_unknown_options"):
        return None
    if "--" in rest:
        rest = rest[: rest.index("--")]
    unknown = [word for word in rest if re.match(r"--[a-z]", word) and word.partition("=")[0] not in known]
    return f"{current.name} has no {', '.join(unknown)}" if unknown else None


def dev_wrong(rest: list[str]) -> str | None:
    listed = re.findall(r"^        (\w[\w -|]*)\)$", (ROOT / "dev").read_text(encoding="utf-8"), re.MULTILINE)
    known = {"help", *(name.strip() for line in listed for name in line.split("|"))}
    return None if not rest or rest[0] in known or not re.fullmatch(r"[a-z-]+", rest[0]) else f"./dev has no {rest[0]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_command_exists_with_its_options(page: Path) -> None:
    found = {command: wrong(command) for command in shown(page)}
    assert {command: error for command, error in found.items() if error} == {}


def test_what_is_wrong_is_noticed() -> None:
    assert wrong("gamecast dmo") == "there is no gamecast dmo"
    assert wrong("gamecast lab simulate faults --seds 3") == "faults has no --seds"
    assert wrong("gamecast up --nodes 1 &") is None
    assert wrong("./dev tset") == "./dev has no tset"
    assert sum(1 for page in PAGES for _ in shown(page)) > 200
