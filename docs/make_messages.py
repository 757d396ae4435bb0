"""Print docs/messages.md, or with --types the TypeScript types of the gateway's messages, from their schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

from gateway import schema
from gateway.descriptions import HTTP_TYPES, REFERENCE, SOCKET_TYPES, schemas
from gateway.refusal import CLOSES, MEANINGS

HEAD = """\
# Messages of the gateway

Every message, field and code. This page is generated from `gateway/schema.py`: `./dev docs` builds it. How
they work together is in [gateway.md](gateway.md). A running gateway describes itself for tools at `/v1/asyncapi.json`
(WebSocket) and `/v1/openapi.json` (HTTP); the TypeScript types of the messages are `@gamecast/client/messages`.

Messages over the WebSocket are JSON, in UTF-8 text: an object, or, from clients, an array of them, processed in order.
Both sides ignore unknown fields. Fields in *italics* may be missing. A position is `epoch-sequence`, such as
`"3-120"`; to compare two of one region, compare epochs, then sequences, as numbers.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    described = schemas((*SOCKET_TYPES, *HTTP_TYPES))
    client, server = get_args(schema.ClientMessage), get_args(schema.ServerMessage)
    told = {each.__name__ for each in (*client, *server)}
    yield "## From the client\n"
    yield from _tables(described, [each.__name__ for each in client])
    yield "## From the gateway\n"
    yield from _tables(described, [each.__name__ for each in server])
    yield "## Their parts\n"
    parts = ["Event", "Gap", "Missing", "State", "StateValue", "Ack", "Limits"]
    yield from _tables(described, parts)
    yield "## Over HTTP\n"
    yield from _tables(described, [name for name in described if name not in told.union(parts)])
    yield "## Codes of errors\n"
    yield from _rows(("code", "meaning"), ((f"`{code}`", meaning) for code, meaning in MEANINGS.items()))
    yield "## Codes of a close\n"
    yield from _rows(("code", "meaning"), ((str(code), meaning) for code, meaning in CLOSES.items()))


def _tables(described: dict[str, Any], names: list[str]) -> Iterator[str]:
    for name in names:
        it = described[name]
        kind = it["properties"].get("type", {}).get("const")
        yield f"### {name}\n" if kind is None else f"### {kind}\n"
        yield it["description"] + "\n"
        yield from _rows(
            ("field", "type", "meaning"),
            (
                (
                    f"`{field}`" if field in it.get("required", ()) else f"*`{field}`*",
                    _kind(of),
                    of.get("description", ""),
                )
                for field, of in it["properties"].items()
                if field != "type"
            ),
        )


def _rows(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    written = ["| " + " | ".join(each.replace("|", "\\|") for each in row) + " |" for row in rows]
    if written:
        yield "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *written]) + "\n"


def _kind(of: dict[str, Any]) -> str:
    """Return a type in words."""
    if "$ref" in of:
        name = of["$ref"].removeprefix(REFERENCE)
        return f"[{name}](#{name.lower()})"
    for several in ("anyOf", "oneOf"):
        if several in of:
            kinds = sorted(dict.fromkeys(map(_kind, of[several])), key=lambda kind: kind == "null")
            return " or ".join(kinds)
    if "enum" in of or "const" in of:
        return " or ".join(f"`{json.dumps(each)}`" for each in of.get("enum", [of.get("const")]))
    if of.get("type") == "array":
        return f"list of {_kind(of['items'])}"
    if of.get("type") == "object":
        inner = of["additionalProperties"]
        return "object" if inner is True else f"{{name: {_kind(inner)}}}"
    if "pattern" in of:
        return "position"
    return str(of.get("type", "any JSON"))


def types() -> str:
    """Return the TypeScript types of the messages."""
    described = schemas((*SOCKET_TYPES, *HTTP_TYPES))
    parts = [
        "/** The messages of the gateway's protocol, as they are on the wire: see docs/messages.md. Generated. */\n",
        "/** `epoch-sequence`. */\nexport type Position = `${number}-${number}`;\n",
        "/** What JSON can represent. */",
        "export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };\n",
        "export type ErrorCode =\n" + "\n".join(f'  | "{code}"' for code in MEANINGS) + ";\n",
    ]
    for name, it in described.items():
        parts += [f"/** {it['description']} */", f"export interface {name} {{"]
        for field, of in it["properties"].items():
            if "description" in of:
                parts.append(f"  /** {of['description']} */")
            optional = "" if field in it.get("required", ()) else "?"
            kind = "ErrorCode" if name in ("ErrorBody", "ErrorMessage") and field == "code" else _typed(of)
            parts.append(f"  {field}{optional}: {kind};")
        parts.append("}\n")
    for union, members in (("ClientMessage", schema.ClientMessage), ("ServerMessage", schema.ServerMessage)):
        parts.append(f"export type {union} = {' | '.join(each.__name__ for each in get_args(members))};")
    parts.append(f"export type Item = {' | '.join(each.__name__ for each in schema.ITEMS)};")
    return "\n".join(parts) + "\n"


def _typed(of: dict[str, Any]) -> str:
    """Return a type in TypeScript."""
    if "$ref" in of:
        return str(of["$ref"].removeprefix(REFERENCE))
    for several in ("anyOf", "oneOf"):
        if several in of:
            return " | ".join(dict.fromkeys(map(_typed, of[several])))
    if "enum" in of or "const" in of:
        return " | ".join(json.dumps(each) for each in of.get("enum", [of.get("const")]))
    if of.get("type") == "array":
        inner = _typed(of["items"])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if of.get("type") == "object":
        inner = of["additionalProperties"]
        return f"{{ [key: string]: {'Json' if inner is True else _typed(inner)} }}"
    if "pattern" in of:
        return "Position"
    return {"integer": "number", None: "Json"}.get(of.get("type"), str(of.get("type")))


if __name__ == "__main__":
    sys.stdout.write(types() if sys.argv[1:] == ["--types"] else page())
