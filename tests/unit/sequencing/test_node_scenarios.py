"""Scripts of what nodes are told, with what they answer and how their keyspaces change: `tests/scenarios/nodes`.

Each line that is not indented is told to a node; the lines below it are what the node answers, and what is stored
afterwards that was not before (``+``), is not any more (``-``) or is something else (``→``). This writes what comes now
into all scripts, for review: ``python -m tests.unit.sequencing.test_node_scenarios``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sequencing.frames import FrameKind, PublishedFrame
from sequencing.keyspace import keyspace
from sequencing.node import Node
from sequencing.plan import AtomId, Step

SCRIPTS = sorted((Path(__file__).parents[2] / "scenarios" / "nodes").glob("*.txt"))
RETENTION_EVENTS = 7


class Nodes:
    """All nodes of a script."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def tell(self, line: str) -> Iterator[str]:
        """Tell a node what a line says; yield what it answers."""
        name, what, *words = line.split()
        node = self._node(name)
        match what, words:
            case "prepares", [number, *steps]:
                epoch, version = map(int, number.split("."))
                parsed = [self._step(step) for step in steps]
                closing = {step.region: after for step, after in parsed if after is not None}
                yield told(node.prepare(epoch, version, [step for step, _ in parsed], closing))
            case "installs", [number, *steps]:
                epoch, version = map(int, number.split("."))
                yield told(node.install(epoch, version, [self._step(step)[0] for step in steps]))
            case "hears", frames:
                yield from (answer.encode().decode() for answer in node.publish(map(self._frame, frames)))
            case "takes", [source, *sequences]:
                link = {linked.sequence: linked for linked in self._node(source).links.get(name, [])}
                answer = node.transfer(source, [link[int(sequence)] for sequence in sequences])
                yield f"{answer.verdict} {answer.accepted}"
            case "acknowledges", [source, sequence]:
                self._node(source).acknowledge(name, int(sequence))
            case "looks", [target]:
                yield str(node.link_tail(target))
            case "has", ["emptied", target, sequence]:
                yield told(node.is_acknowledged(target, int(sequence)))
            case "has", ["ended", region, epoch]:
                yield told(node.ended(region, int(epoch)))
            case "closes", closings:
                yield from (answer.encode().decode() for answer in node.close(map(self._closing, closings)))
            case "opens", [region, epoch, "as", source]:
                node.open(region, int(epoch), self._node(source).accepted(region))
            case "seals", [region, epoch, tick]:
                node.seal(region, int(epoch), int(tick))
            case "admits", [run]:
                node.admit(run)
            case "begins", ["any", number]:
                epoch, version = map(int, number.split("."))
                yield told(node.begin_any(epoch, version))
            case "begins", ["no", "more", "of", epoch]:
                node.begin_no_more()
                yield " ".join(sorted(node.begun(int(epoch))))
            case "forgets", keys:
                over = [(int(key[2:]), key[0]) for key in keys if key[1] == "."]
                node.forget(over, [key for key in keys if key[1] != "."])
            case _:
                raise ValueError(line)

    def stored(self) -> dict[str, str]:
        """Return all that is stored: where → what."""
        return {place: what for node in self._nodes.values() for place, what in stored_by(node)}

    def _node(self, name: str) -> Node:
        return self._nodes.setdefault(name, Node(name, RETENTION_EVENTS))

    def _step(self, text: str) -> tuple[Step, int | None]:
        """Read ``a.2>n2:1,3@1``: the step of region a in epoch 2, to n2, atoms 1 and 3, once epoch 1 is closed."""
        text, _, after = text.partition("@")
        path, _, atoms = text.partition(":")
        where, _, following = path.partition(">")
        region, epoch = where.removeprefix("*").split(".")
        numbers = tuple(AtomId(int(atom)) for atom in atoms.split(",") if atom)
        return Step(region, int(epoch), where[0] != "*", following or None, numbers), int(after) if after else None

    def _closing(self, text: str) -> tuple[str, int, int]:
        """Read ``a.1>2``: epoch 1 of region a, which epoch 2 follows."""
        region, _, epochs = text.partition(".")
        epoch, _, following = epochs.partition(">")
        return region, int(epoch), int(following)

    def _frame(self, text: str) -> PublishedFrame:
        """Read ``a.2:p1#3-5``: events 3 to 5 of p, incarnation 1, to region a in epoch 2; with ``!``, a JOIN."""
        where, _, what = text.partition(":")
        region, epoch = where.split(".")
        sender, _, events = what.partition("#")
        first, _, last = events.removesuffix("!").partition("-")
        kind = FrameKind.JOIN if text.endswith("!") else FrameKind.EVENTS
        count = int(last or first) - int(first) + 1
        return PublishedFrame(region, int(epoch), sender[0], int(sender[1:]), int(first), count, events.encode(), kind)


def told(answer: bool) -> str:
    return "yes" if answer else "no"


def stored_by(node: Node) -> Iterator[tuple[str, str]]:
    for key, content in keyspace(node).items():
        name = key.decode().replace(f"gamecast:{{{node.name}}}:", f"{node.name} ")
        if isinstance(content, dict):
            yield from ((f"{name} {field.decode()!r}", value.decode()) for field, value in content.items())
        else:
            yield name, "there, with nothing in it" if not content else "there"
            for place, fields in content:
                pairs = zip(fields[::2], fields[1::2], strict=True)
                told = " ".join(f"{field.decode()}={value.decode()!r}" for field, value in pairs)
                yield f"{name} {place.decode()}", told


def changes(before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for place in before | after:
        match before.get(place), after.get(place):
            case None, str(new):
                yield f"+ {place}: {new}"
            case str(old), None:
                yield f"- {place}: {old}"
            case old, new if old != new:
                yield f"  {place}: {old} → {new}"


def played(script: str) -> str:
    """Return a script with what comes of it now."""
    nodes, out = Nodes(), list[str]()
    for line in script.splitlines():
        if line.startswith("#") or not line:
            out.append(line)
        elif not line.startswith("  "):
            before = nodes.stored()
            out += line, *(f"  {answer}" for answer in nodes.tell(line))
            out += (f"  {change}" for change in changes(before, nodes.stored()))
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_nodes_answer_and_store_what_the_script_says(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert played(text) == text


if __name__ == "__main__":
    for file in SCRIPTS:
        file.write_text(played(file.read_text(encoding="utf-8")), encoding="utf-8")
