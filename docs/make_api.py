"""Print docs/api.md: a reference of what `gamecast` exports, from its signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, get_overloads

import gamecast
import gamecast.blocking
import gamecast.classic
import gamecast.client.configuration
import gamecast.client.history
import gamecast.event
import gamecast.testing
import sequencing.plan

WIDTH = 100
"""Longer signatures are shown with one parameter a line."""

HEAD = """\
# API reference

What `gamecast` exports. This page is generated from docstrings: `./dev docs` builds it.

If you are new, read [start.md](start.md) first; [glossary.md](glossary.md) explains the terms.
"""

ERRORS = """\
`definite`: the call certainly had no effect. `retriable`: the same call may succeed later. Indentation shows the kind
that an error belongs to; `except` a kind to catch all errors of that kind.
"""

CONNECTING = "connect", "Client", "Authority", "share", "Shared"
ITEMS = (
    "Event",
    "JointEvent",
    "Gap",
    "State",
    "Presence",
    "Update",
    "Receipt",
    "JointReceipt",
    "Status",
    "PublishFailure",
    "Statistics",
)
OPTIONS = "Limits", "Recording", "RecordingStatistics"
ALIASES = {
    "Ordering": sequencing.plan,
    "ReplayOrder": gamecast.client.history,
    "WhenBehind": gamecast.client.configuration,
    "WhenFull": gamecast.client.configuration,
    "Item": gamecast.event,
}
"""Name of a type alias → the module that defines it."""

ITERATION = {"__anext__": "async for", "__iter__": "for"}


def page() -> str:
    """Return the page."""
    return "\n".join([HEAD, *_sections()]).rstrip() + "\n"


def _sections() -> Iterator[str]:
    yield "## Connect\n"
    for name in CONNECTING:
        yield from _export(gamecast, name)
    yield "## Events, receipts and status\n"
    for name in ITEMS:
        yield from _export(gamecast, name)
    yield "## Options\n"
    for name in OPTIONS:
        yield from _export(gamecast, name)
    for name, module in ALIASES.items():
        yield from _alias(module, name)
    yield from _errors()
    for module in (gamecast.blocking, gamecast.classic, gamecast.testing):
        yield f"## {module.__name__}\n"
        yield _prose(module)
        for name in _names(module):
            yield from _export(module, name)


def _names(module: ModuleType) -> list[str]:
    """Return what a module exports; without ``__all__``, what it defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        if inspect.isclass(value) or inspect.isfunction(value)
    ]


def _export(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    full = f"{module.__name__}.{name}"
    yield f"### {full}\n"
    if not inspect.isclass(value):
        yield _code(_signature(shape, full) for shape in get_overloads(value) or [value])
        yield _prose(value)
        return
    yield _prose(value)
    yield from _fields(value)
    for member, attribute in vars(value).items():
        yield from _member(name, member, attribute)


def _member(owner: str, name: str, attribute: Any) -> Iterator[str]:
    if isinstance(attribute, property):
        if not name.startswith("_"):
            yield f"#### {owner}.{name}\n"
            yield _code([f"{name}: {inspect.signature(_getter(attribute)).return_annotation}"])
            yield _prose(attribute)
        return
    function = attribute.__func__ if isinstance(attribute, classmethod | staticmethod) else attribute
    if not inspect.isfunction(function) or not inspect.getdoc(function):
        return
    if name in ITERATION:
        yield f"#### {ITERATION[name]} item in {owner}\n"
        yield _prose(function)
    elif not name.startswith("_"):
        yield f"#### {owner}.{name}\n"
        yield _code([_signature(function, name, is_method=True)])
        yield _prose(function)


def _getter(attribute: property) -> Callable[..., Any]:
    assert attribute.fget is not None
    return attribute.fget


def _signature(function: Callable[..., Any], name: str, *, is_method: bool = False) -> str:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[1 if is_method else 0 :]
    shown: list[str] = []
    has_star = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            shown.append("*")
        has_star = has_star or parameter.kind in (parameter.VAR_POSITIONAL, parameter.KEYWORD_ONLY)
        shown.append(_parameter(parameter))
    prefix = ("async def " if inspect.iscoroutinefunction(function) else "def ") if is_method else ""
    result = f" -> {signature.return_annotation}" if signature.return_annotation is not signature.empty else ""
    line = f"{prefix}{name}({', '.join(shown)}){result}"
    if len(line) <= WIDTH:
        return line
    return f"{prefix}{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){result}"


def _parameter(parameter: inspect.Parameter) -> str:
    text = str(parameter.replace(annotation=parameter.empty, default=parameter.empty))
    if parameter.annotation is not parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is parameter.empty:
        return text
    default = "..." if parameter.default is ... else _double_quoted(repr(parameter.default))
    return f"{text} = {default}" if parameter.annotation is not parameter.empty else f"{text}={default}"


def _fields(kind: type) -> Iterator[str]:
    """Yield the fields of a named tuple or a dataclass, with what their docstrings say."""
    if not hasattr(kind, "_fields") and not hasattr(kind, "__dataclass_fields__"):
        return
    [definition] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    lines = []
    for node, text in _with_docstrings(definition.body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            default = f" = {_default(kind, node.target.id, node.value)}" if node.value is not None else ""
            said = ": " + " ".join(_markdown(text).split()) if text else ""
            lines.append(f"- `{node.target.id}: {ast.unparse(node.annotation)}{default}`{said}\n")
    if lines:
        yield "".join(lines)


def _default(kind: type, field: str, written: ast.expr) -> str:
    """Return the default of a field as it is written, or its value where a name is written."""
    if not any(isinstance(part, ast.Name) for part in ast.walk(written)):
        return _double_quoted(ast.unparse(written))
    slots = getattr(kind, "__dataclass_fields__", {})
    value = slots[field].default if field in slots else getattr(kind, "_field_defaults", {})[field]
    return _double_quoted(repr(value)) if isinstance(value, int | float | str) else "…"


def _alias(module: ModuleType, name: str) -> Iterator[str]:
    yield f"### gamecast.{name}\n"
    for node, text in _with_docstrings(ast.parse(inspect.getsource(module)).body):
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]:
            yield _code([_double_quoted(ast.unparse(node))])
            if text:
                yield _markdown(text) + "\n"


def _with_docstrings(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Yield each statement with the string that follows it, if one does."""
    for node, following in zip(body, [*body[1:], None], strict=True):
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = str(following.value.value)
        yield node, text


def _errors() -> Iterator[str]:
    yield "## Errors\n"
    yield ERRORS
    names = [name for name in gamecast.__all__ if _is_error(getattr(gamecast, name))]
    yield "| error | definite | retriable | means |\n|---|---|---|---|\n" + "".join(
        _error_rows(gamecast.GamecastError, {getattr(gamecast, name) for name in names}, 0)
    )


def _error_rows(error: type[gamecast.GamecastError], exported: set[Any], depth: int) -> Iterator[str]:
    said = " ".join(_markdown(inspect.getdoc(error) or "").split()).replace("|", "\\|")
    cells = "yes" if error.definite else "no", "yes" if error.retriable else "no"
    yield f"| {'&nbsp;&nbsp;' * depth}`{error.__name__}` | {cells[0]} | {cells[1]} | {said} |\n"
    for kind in sorted(exported, key=lambda each: str(each.__name__)):
        if error in kind.__bases__:
            yield from _error_rows(kind, exported, depth + 1)


def _is_error(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, gamecast.GamecastError)


def _code(lines: Iterator[str] | list[str]) -> str:
    return "```python\n" + "\n".join(lines) + "\n```\n"


def _double_quoted(code: str) -> str:
    """Write strings as ``ruff format`` does, which formats the page, too."""
    return code if '"' in code else code.replace("'", '"')


def _prose(value: Any) -> str:
    return _markdown(inspect.getdoc(value) or "") + "\n"


def _markdown(text: str) -> str:
    """Turn a docstring into Markdown: code in single backticks, examples in fences."""
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if paragraph.startswith(">>> "):
            code = re.sub(r"^(>>> |\.\.\. |\.\.\.$)", "", paragraph, flags=re.MULTILINE)
            paragraphs.append(f"```python\n{code}\n```")
        else:
            paragraphs.append(paragraph.replace("``", "`"))
    return "\n\n".join(paragraphs)


if __name__ == "__main__":
    sys.stdout.write(page())
