"""Mutants of a file: its text with one small change each, as somebody who errs might have written it.

Of the changes that can be made to an expression, only those are made that imply others: who notices that `<` is not
`<=` and not `!=`, and that the test can be false, notices `>` and `==` as well. Nothing is changed in annotations,
messages of exceptions and docstrings.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", "!="),
    ast.LtE: ("<", "=="),
    ast.Gt: (">=", "!="),
    ast.GtE: (">", "=="),
    ast.Eq: ("<=", ">="),
    ast.NotEq: ("<", ">"),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
FALSE_IMPLIES = ast.LtE, ast.GtE, ast.NotEq
"""Comparisons that are also made always true, where they decide; the others are made always false."""
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*"}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
NARROWS = "union", "intersection", "difference"
LOOK_UP = "get", "pop", "setdefault", "discard"
"""With another key these find nothing, as everybody notices."""
INTEGERS = "int", "int | None", "AtomId"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: ``old`` are the lines that change, ``new`` what they become, each without the white space around it.

    ``nth``: which of several in this function that look the same, from 1 on. Together these are its name, which lasts
    when other lines change. ``function``: qualified, empty for what stands outside of all.
    """

    file: str
    function: str
    old: str
    new: str
    nth: int
    line: int
    start: int
    end: int
    text: bytes

    @property
    def name(self) -> tuple[str, str, str, str, int]:
        """What tells it from all others."""
        return self.file, self.function, self.old, self.new, self.nth

    def applied(self, source: bytes) -> bytes:
        """Return the file's text with the change."""
        return source[: self.start] + self.text + source[self.end :]


def mutants_of(file: str, source: bytes, integers: frozenset[str]) -> list[Mutant]:
    """Return all mutants of a file that compile; ``integers``: names that hold whole numbers."""
    writer = _Writer(file, source, integers)
    writer.visit(ast.parse(source))
    seen: set[bytes] = {ast.dump(ast.parse(source)).encode()}
    counts: Counter[tuple[str, str, str]] = Counter()
    found: list[Mutant] = []
    for mutant in sorted(writer.found, key=lambda each: (each.start, each.end, each.text)):
        try:
            changed = ast.dump(ast.parse(mutant.applied(source))).encode()
        except SyntaxError:
            continue
        if changed not in seen:
            seen.add(changed)
            key = mutant.function, mutant.old, mutant.new
            counts[key] += 1
            found.append(replace(mutant, nth=counts[key]))
    return found


def integers_in(sources: Iterable[bytes]) -> frozenset[str]:
    """Return the names that are annotated as whole numbers anywhere in some files."""
    found: set[str] = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.AnnAssign(target=ast.Name(name), annotation=told) if ast.unparse(told) in INTEGERS:
                    found.add(name)
                case ast.arg(arg=name, annotation=ast.expr() as told) if ast.unparse(told) in INTEGERS:
                    found.add(name)
    return frozenset(found)


class _Writer(ast.NodeVisitor):
    def __init__(self, file: str, source: bytes, integers: frozenset[str]) -> None:
        self.found: list[Mutant] = []
        self._file, self._source, self._integers = file, source, integers
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._scope: list[str] = []
        self._depth = 0

    # What is entered.

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node.name, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self._depth:
            self._body(node.body)
            return
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._depth += 1
        self._enter(node.name, node.body)
        self._depth -= 1

    def _enter(self, name: str, body: list[ast.stmt]) -> None:
        self._scope.append(name)
        self._body(body)
        self._scope.pop()

    def _body(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                self.visit(statement)

    # Statements.

    def visit_Raise(self, node: ast.Raise) -> None:
        self._delete(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        """It is for the reader, and for types."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not self._is_type(node.annotation):
            self._offset(node.value)
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        self._delete(node)
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not self._depth and isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.BitOr):
            return  # another name for a type
        if self._depth and not any(isinstance(target, ast.Name) for target in node.targets):
            self._delete(node)
        for value in node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]:
            self._offset(value)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._delete(node)
        if type(node.op) in ARITHMETIC and isinstance(node.op, ast.Add | ast.Sub):
            between = self._span(node.target)[1], self._span(node.value)[0]
            self._emit(*between, f" {ARITHMETIC[type(node.op)]}= ".encode())
        self.visit(node.value)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._delete(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._delete(node)
        self._replace(node, b"break")

    def visit_Break(self, node: ast.Break) -> None:
        self._delete(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None or isinstance(node.value, ast.Constant):
            self._delete(node)
        if node.value is not None:
            self._offset(node.value)
            self.visit(node.value)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._test(node.test)
            self._body(node.body)
            self._body(node.orelse)

    def visit_While(self, node: ast.While) -> None:
        if not isinstance(node.test, ast.Constant):
            self._replace(node.test, b"False")
            self._test(node.test, forced=False)
        self._body(node.body)

    def visit_For(self, node: ast.For) -> None:
        self._replace(node.iter, b"()")
        self.visit(node.iter)
        self._body(node.body)

    # Expressions.

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._test(node.test)
        self.visit(node.body)
        self.visit(node.orelse)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        for test in node.ifs:
            self._test(test)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._test(node, forced=False)

    def visit_Module(self, node: ast.Module) -> None:
        self._body(node.body)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Names have no order that matters: whether two are one is changed as what decides, or altogether."""
        sides = [node.left, *node.comparators]
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            others = COMPARISONS[type(op)]
            if isinstance(op, ast.Eq | ast.NotEq) and not (self._is_number(left) or self._is_number(right)):
                others = ("==" if isinstance(op, ast.NotEq) else "!=",)
            for other in others:
                self._emit(self._span(left)[1], self._span(right)[0], f" {other} ".encode(), between=True)
        for side in sides:
            if isinstance(side, ast.Tuple):
                for element in side.elts:
                    self.visit(element)
            elif not (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes)):
                self.visit(side)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace(node, b"bool(" + self._text(node.operand) + b")")
        self.visit(node.operand)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        left, right = self._text(node.left), self._text(node.right)
        if isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
            self._replace(node, b"(" + left + b")")
        if isinstance(node.op, ast.BitOr | ast.BitAnd):
            self._replace(node, b"(" + right + b")")
        if (other := ARITHMETIC.get(type(node.op))) is not None:
            self._emit(self._span(node.left)[1], self._span(node.right)[0], f" {other} ".encode(), between=True)
        self.visit(node.left)
        self.visit(node.right)

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(name) if name in CALLS:
                self._replace(node.func, CALLS[name].encode())
            case ast.Attribute(value=receiver, attr=name) if name == "popleft":
                self._replace(node.func, self._text(receiver) + b".pop")
            case ast.Attribute(value=receiver, attr=name) if name in NARROWS:
                self._replace(node, self._text(receiver))
        self.visit(node.func)
        looks_up = isinstance(node.func, ast.Attribute) and node.func.attr in LOOK_UP
        for argument in [*node.args[looks_up:], *(each.value for each in node.keywords if each.arg != "strict")]:
            self._offset(argument)
            self.visit(argument)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        for element in node.elts:
            self._offset(element)
            self.visit(element)

    def visit_Constant(self, node: ast.Constant) -> None:
        match node.value:
            case bool(value):
                self._replace(node, str(not value).encode())
            case int(value):
                self._replace(node, str(value + 1).encode())
                if value:
                    self._replace(node, str(value - 1).encode())
            case str(value) if self._depth:
                self._replace(node, b'""' if value else b'"?"')
            case bytes(value) if self._depth:
                self._replace(node, b'b""' if value else b'b"?"')

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._replace(node, b'""')  # the places of what is inside are not told before Python 3.12

    # How it is written.

    def _test(self, node: ast.expr, *, forced: bool = True) -> None:
        """Change what decides: ``forced`` also to what is always, or never, so."""
        match node:
            case ast.BoolOp(op=op, values=values):
                if forced:
                    self._replace(node, b"False" if isinstance(op, ast.And) else b"True")
                for place in range(len(values)):
                    rest = [self._operand(value) for value in [*values[:place], *values[place + 1 :]]]
                    self._replace(node, (b" and " if isinstance(op, ast.And) else b" or ").join(rest))
                for value in values:
                    self._test(value, forced=False)
            case ast.Compare(ops=[op]) if not isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn):
                if forced:
                    self._replace(node, b"True" if isinstance(op, FALSE_IMPLIES) else b"False")
                self.visit(node)
            case _ if forced:
                self._replace(node, b"True")
                self._replace(node, b"False")
                for inner in ast.iter_child_nodes(node):
                    self._deeper(inner)
            case _:
                for inner in ast.iter_child_nodes(node):
                    self._deeper(inner)

    def _deeper(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            if isinstance(node, ast.BoolOp | ast.Compare):
                self._test(node, forced=False)
            else:
                self.visit(node)
        else:
            self.generic_visit(node)

    def _operand(self, node: ast.expr) -> bytes:
        loose = isinstance(node, ast.BoolOp | ast.IfExp | ast.NamedExpr)
        return b"(" + self._text(node) + b")" if loose else self._text(node)

    def _offset(self, node: ast.expr) -> None:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in self._integers:
            self._replace(node, self._text(node) + b" + 1")
            self._replace(node, self._text(node) + b" - 1")

    def _is_number(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(name) | ast.Attribute(attr=name):
                return name in self._integers
            case ast.Constant(value=value):
                return type(value) is int
            case ast.BinOp(op=ast.Add() | ast.Sub()) | ast.Tuple() | ast.Call(func=ast.Name("len")):
                return True
        return False

    def _is_type(self, annotation: ast.expr) -> bool:
        return "TypeVar" in ast.unparse(annotation)

    def _delete(self, node: ast.stmt) -> None:
        if self._depth:
            self._replace(node, b"pass")

    def _replace(self, node: ast.expr | ast.stmt, text: bytes) -> None:
        self._emit(*self._span(node), text)

    def _text(self, node: ast.expr) -> bytes:
        start, end = self._span(node)
        return self._source[start:end]

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        return start, self._line_starts[node.end_lineno - 1] + node.end_col_offset

    def _emit(self, start: int, end: int, text: bytes, *, between: bool = False) -> None:
        replaced = self._source[start:end]
        if between:  # parentheses that belong to what stands on either side stay
            opening, closing = _parentheses(replaced)
            text = closing + text + opening
        first = self._source.rfind(b"\n", 0, start) + 1
        last = self._source.find(b"\n", end)
        new = self._source[first:start] + text + self._source[end:last]
        line = self._source.count(b"\n", 0, start) + 1
        old = self._source[first:last]
        scope = ".".join(self._scope)
        self.found.append(Mutant(self._file, scope, _tidy(old), _tidy(new), 0, line, start, end, text))


def _parentheses(text: bytes) -> tuple[bytes, bytes]:
    return b"(" * text.count(b"("), b")" * text.count(b")")


def _tidy(lines: bytes) -> str:
    return "\n".join(_stripped(lines.decode().splitlines()))


def _stripped(lines: Iterable[str]) -> Iterator[str]:
    return (line.strip() for line in lines if line.strip())
