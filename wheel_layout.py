"""Lays the flat source tree under `gamecast/` in the wheel, so that installing it claims one top-level name.

The repository imports its folders beside `gamecast` (`sequencing`, `adapters`, `cli` and others) by their bare names.
Installed under those names they would overwrite the files of other projects that use them, and uninstalling would
delete theirs. `pyproject.toml` moves the folders (`sources` of the wheel target); this build hook makes the imports
follow. `laboratory/pyproject.toml` has the same done for gamecast-lab, which installs beside it.

Only module names in import statements change, by inserting the prefix where `ast` says that they stand: line numbers,
comments and strings stay as they are. What cannot be followed that way stops the build.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.builders.plugin.interface import IncludedFile
from hatchling.builders.wheel import WheelBuilderConfig
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGE = "gamecast"
LABORATORY = "gamecast-lab"
ROOT = Path(__file__).parent
OF_PACKAGE = (*("adapters", "analytics", "cli", "demo", "gateway", "launcher", "loadtest", "placement", "sequencing"),)
OF_LABORATORY = ("classic", "laboratory")
NOT_OF_WHEELS = {"__pycache__", "build", "dist"}
"""Folders that builds and Python leave in the tree."""

# A pure folder cannot import the connection that runs its protocols, so this file is its __init__ in the wheel.
CLASSIC, CLASSIC_IN_TREE = "gamecast/classic/__init__.py", "gamecast/classic.py"

# Functions that are given a module's name, of which a bare `adapters` cannot be told from any other word.
TAKES_MODULE_NAME = frozenset({"__import__", "files", "find_spec", "get_data", "import_module", "run_module"})

_FROM = re.compile(rb"from(?:[ \t\f]|\\\r?\n)*")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class WheelLayout(BuildHookInterface[WheelBuilderConfig]):
    """Puts rewritten copies into the wheel in place of the files that import moved modules."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "sdist":
            raise LayoutError("gamecast-lab has no source distribution of its own: build --wheel; gamecast's has it")
        if version == "editable":
            return  # an editable install points at the flat tree itself
        self._copies = TemporaryDirectory(prefix="gamecast-wheel-")
        is_laboratory = self.metadata.name == LABORATORY
        chosen = laboratory_files() if is_laboratory else self.build_config.builder.recurse_selected_project_files()
        selected = list(chosen)
        refuse_collisions(selected)
        modules = moved_modules(files_of(OF_PACKAGE + OF_LABORATORY))
        for number, file in enumerate(selected):
            is_code = file.path.endswith((".py", ".pyi"))
            source = Path(file.path).read_bytes() if is_code or is_laboratory else b""
            rewritten = rewrite_imports(source, file_name=file.relative_path, modules=modules) if is_code else source
            if is_laboratory or rewritten != source:
                copy = Path(self._copies.name, str(number))
                copy.write_bytes(rewritten)
                build_data["force_include"][str(copy)] = file.distribution_path

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable" and self.target_name == "wheel":
            self._copies.cleanup()


class OfTheSameVersion(MetadataHookInterface):
    """Gives gamecast-lab the version of the gamecast beside it, and has it need that one."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        said = re.search(r'^__version__ = "(.*)"$', (ROOT / PACKAGE / "version.py").read_text(), re.MULTILINE)
        assert said, "gamecast/version.py has no version"
        metadata["version"] = said[1]
        metadata["dependencies"] = [f"{PACKAGE}[cli,planner,recording]=={said[1]}"]


def files_of(folders: Iterable[str]) -> Iterator[IncludedFile]:
    """Yields the files of folders of the tree, with their places in a wheel."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and NOT_OF_WHEELS.isdisjoint(path.parts):
                place = path.relative_to(ROOT).as_posix()
                yield IncludedFile(str(path), place, f"{PACKAGE}/{place}")


def laboratory_files() -> Iterator[IncludedFile]:
    """Yields the files of gamecast-lab."""
    for file in files_of(OF_LABORATORY):
        if file.distribution_path != CLASSIC and file.relative_path != "laboratory/pyproject.toml":
            yield file
    yield IncludedFile(str(ROOT / CLASSIC_IN_TREE), CLASSIC_IN_TREE, CLASSIC)


class LayoutError(Exception):
    """The source tree cannot be laid under `gamecast/` without changing what it does."""


def rewrite_imports(source: bytes, *, file_name: str, modules: Collection[str]) -> bytes:
    """Returns UTF-8 `source` with `gamecast.` before each of `modules` that an import statement names.

    `modules` are dotted names, the folders' own among them. Raises `LayoutError` for a string that is one of them, and
    for `import sequencing` and `import sequencing.x` without `as`: these bind the name `sequencing`, whose later uses
    only a scope analysis could follow.
    """
    # ast counts lines and columns, in bytes, from behind the mark.
    mark = _BYTE_ORDER_MARK if source.startswith(_BYTE_ORDER_MARK) else b""
    body = source.removeprefix(mark)
    line_starts = [0]
    for line in body.splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(line))

    positions = []
    for node in ast.walk(ast.parse(body, filename=file_name)):
        refuse_module_string(node, file_name=file_name, modules=modules)
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_moved(node.module, modules):
            keyword = _FROM.match(body, line_starts[node.lineno - 1] + node.col_offset)
            assert keyword, f"{file_name}:{node.lineno}: the import does not begin with 'from'"
            positions.append(keyword.end())
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if not _is_moved(alias.name, modules):
                    continue
                if alias.asname is None:
                    raise LayoutError(
                        f"{file_name}:{alias.lineno}: write 'import {alias.name} as …' or 'from … import …': "
                        f"in the wheel the module is {PACKAGE}.{alias.name}, which the bare name does not reach"
                    )
                positions.append(line_starts[alias.lineno - 1] + alias.col_offset)

    for position in sorted(positions, reverse=True):
        body = body[:position] + f"{PACKAGE}.".encode() + body[position:]
    return mark + body


def refuse_module_string(node: ast.AST, *, file_name: str, modules: Collection[str]) -> None:
    """Raises `LayoutError` if `node` is a string that names a moved module, or a call that is given one."""
    suspects: list[ast.expr] = []
    if isinstance(node, ast.Constant) and "." in _text(node):
        suspects = [node]
    elif isinstance(node, ast.Call):
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
        suspects = list(node.args[:1]) if function in TAKES_MODULE_NAME else []
    for suspect in suspects:
        if _text(suspect) in modules:
            raise LayoutError(
                f"{file_name}:{suspect.lineno}: {_text(suspect)!r} names a module that the wheel moves under "
                f"{PACKAGE}: use the module's __name__ instead, or Path(__file__) to find a file beside it"
            )


def refuse_collisions(files: Iterable[IncludedFile]) -> None:
    """Raises `LayoutError` if two files get one place or module name, or one stands outside `gamecast/`."""
    sources: dict[str, str] = {}
    for file in files:
        place = file.distribution_path
        if PurePath(place).parts[0] != PACKAGE:
            raise LayoutError(f"{file.relative_path} would be installed outside {PACKAGE}, as {place}")
        if (other := sources.setdefault(place, file.relative_path)) != file.relative_path:
            raise LayoutError(f"{other} and {file.relative_path} would both be installed as {place}")
    for place, source in sources.items():
        if package := sources.get(f"{place.removesuffix('.py')}/__init__.py"):
            raise LayoutError(f"{source} and {package} would both be installed as the module {place}: leave one out")


def moved_modules(files: Iterable[IncludedFile]) -> frozenset[str]:
    """The dotted source names of the modules, packages and folders that the wheel puts elsewhere."""
    modules: set[str] = set()
    for file in files:
        source = PurePath(file.relative_path)
        if file.distribution_path != file.relative_path:
            modules.update(".".join(folder.parts) for folder in source.parents if folder.parts)
            if source.suffix in {".py", ".pyi"}:
                modules.add(".".join(source.with_suffix("").parts))
    return frozenset(modules)


def _is_moved(module: str | None, modules: Collection[str]) -> bool:
    return module is not None and module.partition(".")[0] in modules


def _text(node: ast.AST) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
