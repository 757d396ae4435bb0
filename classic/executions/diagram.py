"""A space–time diagram: a line for each process, an arrow for each message, those that break something marked."""

from __future__ import annotations

from collections.abc import Collection
from html import escape

from classic.executions.record import Event, Kind, Record

STEP, LANE, LEFT, TOP = 46, 64, 90, 46
"""Pixels between events, between processes, and to the first of each."""
INK, MARK, PALE = "#333333", "#c2271a", "#bbbbbb"


def draw(record: Record, *, marked: Collection[str] = (), title: str = "") -> str:
    """Return an SVG of an execution, from left to right; ``marked``: the messages in red."""
    shown = [event for event in record.events if event.kind is not Kind.PUBLISH]
    lane = {process: TOP + LANE * row for row, process in enumerate(record.names)}
    width = LEFT + STEP * (len(shown) + 1)
    height = TOP + LANE * len(lane) - LANE // 2 + 10
    size = f'width="{width}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<defs>" + _head("head", INK) + _head("mark", MARK) + "</defs>",
        f'<rect {size} fill="white"/>',
        _text(LEFT - 60, 18, title, INK, anchor="start"),
    ]
    for process, y in lane.items():
        parts.append(_text(LEFT - 20, y + 4, process, INK, anchor="end"))
        parts.append(f'<line x1="{LEFT - 10}" y1="{y}" x2="{width - 12}" y2="{y}" stroke="{PALE}"/>')
    sends: dict[str, tuple[int, int]] = {}
    arrows, dots = [], []
    for column, event in enumerate(shown):
        x, y = LEFT + STEP * column + STEP // 2, lane[event.process]
        colour = MARK if event.message in marked else INK
        if event.kind is Kind.SEND:
            sends[event.message] = (x, y)
            dots.append(_text(x, y - 9, event.message, colour))
        elif event.kind is Kind.RECEIVE and event.message in sends:
            if sends[event.message][1] == y:
                dots.append(_text(x, y + 18, event.message, colour))
            else:
                arrows.append(_arrow(sends[event.message], (x, y), colour, event))
        dots.append(_dot(event, x, y, colour))
    return "\n".join([*parts, *arrows, *dots, "</svg>"]) + "\n"


def _arrow(start: tuple[int, int], end: tuple[int, int], colour: str, event: Event) -> str:
    marker = "mark" if colour == MARK else "head"
    return (
        f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" stroke="{colour}" stroke-width="1.3" '
        f'marker-end="url(#{marker})"><title>{escape(event.message)} to {escape(event.process)}</title></line>'
    )


def _dot(event: Event, x: int, y: int, colour: str) -> str:
    match event.kind:
        case Kind.CRASH:
            return _text(x, y + 5, "✕", MARK, size=18)
        case Kind.GAP:
            return _text(x, y + 18, "gap", MARK)
        case Kind.VIEW:
            members = ", ".join(event.members)
            bar = f'<line x1="{x}" y1="{y - 12}" x2="{x}" y2="{y + 12}" stroke="{INK}" stroke-width="2"/>'
            return bar + _text(x, y + 24, f"{event.view}: {members}", INK, size=9)
        case Kind.SEND:
            return f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>'
        case _:
            return f'<circle cx="{x}" cy="{y}" r="3.5" fill="white" stroke="{colour}" stroke-width="1.5"/>'


def _text(x: int, y: int, text: str, colour: str, *, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'


def _head(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 10 10" refX="13" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 10 5 0 10z" fill="{colour}"/></marker>'
    )
