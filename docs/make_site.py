"""Build the documentation's site in build/site/html: `./dev docs`.

The pages are those of this folder, in the order of zensical.toml, and those that its scripts print. A file elsewhere
in the tree to which a page links gets a page of its own, so that no link leaves the site. The build is strict, and all
links and anchors of the result are checked.

Ends with 1 if a page is in no part of the site, a link leads nowhere, or the build fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
GLOSSARY = DOCS / "glossary.md"
SITE = ROOT / "build" / "site"
PAGES, HTML = SITE / "pages", SITE / "html"
TREE = "tree"
"""The folder of the site with what is not in the folder of the pages."""
LINK = re.compile(r"(?:\[([^\]\[]*)\]|(?<=\]))\(([^)\s]+)\)")
"""Its text, if that is no picture, and where it leads."""
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
TERM = re.compile(r"^\| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
LANGUAGES = {".py": "python", ".js": "js", ".mjs": "js", ".lua": "lua", ".yaml": "yaml", ".toml": "toml", ".sh": "sh"}
GENERATED = "api", "commands", "messages", "metrics", "states", "tables"
"""The pages that scripts of this folder print: they are written when the site is built, and git has none of them."""
COMMANDS = "commands"
"""The folder with a page for each command, which are written too."""
PICTURES = {".gif", ".png", ".svg", ".html", ".json"}
"""And pages and data that are there to be opened as they are."""
EXCLUDED = "---\nsearch:\n  exclude: true\n---\n\n"


class Broken(Exception):
    """Something of the site is not as it has to be."""


def main() -> int:
    """Build, and check what was built; return the exit status."""
    try:
        gather()
        build()
        found = list(wrong_links(HTML))
    except Broken as error:
        found = [str(error)]
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        pages = sum(1 for _ in HTML.rglob("*.html"))
        print(f"{HTML.relative_to(ROOT)}/index.html: {pages} pages, and all links lead somewhere")
    return 1 if found else 0


def gather() -> None:
    """Copy the pages, their pictures, and what they link to."""
    shutil.rmtree(SITE, ignore_errors=True)
    PAGES.mkdir(parents=True)
    shutil.copy(DOCS / "zensical.toml", SITE)
    for name in GENERATED:
        (DOCS / f"{name}.md").write_text(printed(name), encoding="utf-8")
    (DOCS / COMMANDS).mkdir(exist_ok=True)
    for name in re.findall(rf"\({COMMANDS}/([\w-]+)\.md\)", (DOCS / "commands.md").read_text(encoding="utf-8")):
        (DOCS / COMMANDS / f"{name}.md").write_text(printed("commands", name), encoding="utf-8")
    for path in DOCS.rglob("*"):
        if path.suffix in PICTURES:
            copy(path, path.relative_to(DOCS).as_posix())
    waiting = sorted(DOCS.glob("*.md"))
    known = {path: path.name for path in waiting}
    absent = known.keys() - {DOCS / name for name in in_navigation()}
    for path in sorted((DOCS / COMMANDS).glob("*.md")):
        known[path] = f"{COMMANDS}/{path.name}"
        waiting.append(path)
    if absent:
        raise Broken(f"docs/zensical.toml lacks {', '.join(sorted(path.name for path in absent))}")
    while waiting:
        path = waiting.pop()
        text, linked = page(path, known)
        copy_text(known[path], text)
        waiting += linked


def printed(name: str, *options: str) -> str:
    """Return what the script of a page prints; raises `Broken` if it fails."""
    command = [sys.executable, "-X", "utf8", str(DOCS / f"make_{name}.py"), *options]
    run = subprocess.run(command, capture_output=True, check=False, encoding="utf-8")
    if run.returncode:
        raise Broken(f"docs/make_{name}.py: {run.stderr}")
    return run.stdout


def in_navigation() -> list[str]:
    """Return the pages of the navigation."""

    def names(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            yield from names(list(entry.values()))
        else:
            for each in entry:
                yield from names(each)

    return list(names(tomllib.loads((DOCS / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]))


def page(path: Path, known: dict[Path, str]) -> tuple[str, list[Path]]:
    """Return a file of the tree as a page of the site, and the files that it is the first to link to.

    ``known``: file → where it is in the site; the new ones are added.
    """
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        rows = "\n".join(f"- [{each.name}]({each.name})" for each in sorted(path.iterdir()) if each.name[0] not in "._")
        text = f"{EXCLUDED}# {name}/\n\n{rows}\n"
    elif path.suffix == ".md":
        text = path.read_text(encoding="utf-8")
    else:
        fence = "`" * 6
        code = path.read_text(encoding="utf-8").rstrip("\n")
        language = LANGUAGES.get(path.suffix, "text")
        return f"{EXCLUDED}# {path.name}\n\n`{name}`\n\n{fence}{language}\n{code}\n{fence}\n", []
    linked: list[Path] = []
    folder = path if path.is_dir() else path.parent

    def moved(match: re.Match[str]) -> str:
        said = "" if match[1] is None else f"[{titled(match[1], match[2], folder)}]"
        target, anchor = urldefrag(match[2])
        if not target or urlsplit(match[2]).scheme:
            return match[0]
        there = Path(normpath(folder / unquote(target)))
        here = PurePosixPath(known[path]).parent.as_posix()
        if there.is_relative_to(DOCS) and there.suffix in PICTURES:
            return f"{said}({relpath(there.relative_to(DOCS), here)})"
        if not there.exists():
            raise Broken(f"{name}: there is no {match[2]}")
        if there not in known:
            known[there] = f"{TREE}/{there.relative_to(ROOT).as_posix()}" + ("" if there.suffix == ".md" else ".md")
            linked.append(there)
        return f"{said}({relpath(known[there], here)}{f'#{anchor}' if anchor else ''})"

    text = outside_code(text, moved)
    return (TERM.sub(with_anchor, text) if path == GLOSSARY else text), linked


def titled(said: str, target: str, folder: Path) -> str:
    """Return what a link says: where it names a page by its file, the title of the page, or of the part of it."""
    place, anchor = urldefrag(target)
    there = Path(normpath(folder / unquote(place)))
    if said != there.name or there.suffix != ".md" or not there.is_file():
        return said
    headings = HEADING.findall(outside_code(there.read_text(encoding="utf-8"), str, keep=False))
    found = next((each for each in headings if anchor and anchor_of(each) == anchor), headings[0])
    return re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", found)


def anchor_of(heading: str) -> str:
    """Return the anchor of a heading, as the generator makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", plain)).strip("-")


def with_anchor(match: re.Match[str]) -> str:
    """Return a row of the glossary with a place to link to."""
    return (
        match[0]
        if match[1] in ("term", "---")
        else f'| <span id="{anchor_of(match[1])}">{match[1]}</span> | {match[2]} |'
    )


def outside_code(text: str, moved: Any, *, keep: bool = True) -> str:
    """Apply the change of links to what is no block of code; ``keep`` the blocks."""
    parts = re.split(r"(^ *```.*?^ *```\w*$)", text, flags=re.MULTILINE | re.DOTALL)
    if not keep:
        return "".join(parts[::2])
    return "".join(part if place % 2 else LINK.sub(moved, part) for place, part in enumerate(parts))


def copy(path: Path, name: str) -> None:
    """Copy a file to a place in the site."""
    to = PAGES / name
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, to)


def copy_text(name: str, text: str) -> None:
    """Write a page of the site."""
    to = PAGES / name
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8")


def build() -> None:
    """Run the site generator; raises `Broken` with its output if it has anything to complain about."""
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=SITE, capture_output=True, text=True, check=False, env=plain)
    if done.returncode != 0:
        raise Broken(done.stdout + done.stderr)
    index = HTML / "search.json"
    found = json.loads(index.read_text(encoding="utf-8"))
    found["items"] = [*terms(), *found["items"]]
    index.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def terms() -> Iterator[dict[str, Any]]:
    """Yield the terms of the glossary for the search: who looks for a word of ours finds what it means first.

    The search goes by how often a word stands in how short a text, so the term is said again behind its meaning.
    """
    for names, meaning in TERM.findall(GLOSSARY.read_text(encoding="utf-8")):
        if names in ("term", "---"):
            continue
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", meaning)
        for term in names.split(", "):
            yield {
                "location": f"glossary.html#{anchor_of(names)}",
                "level": 1,
                "title": term,
                "text": f"{term}: {text} Glossary: {term}, {term}.",
                "path": ["Glossary"],
                "tags": [],
            }


class Anchors(HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See `HTMLParser`."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and tag != "link":
                self.links.append(value)


def wrong_links(html: Path) -> Iterator[str]:
    """Yield a line for each link within the site that leads nowhere."""
    parsed: dict[Path, Anchors] = {}
    for path in sorted(html.rglob("*.html")):
        parsed[path] = Anchors()
        parsed[path].feed(path.read_text(encoding="utf-8"))
    for path, anchors in parsed.items():
        if path.name == "404.html":  # its links are from wherever the reader is
            continue
        for link in anchors.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            there = path if not parts.path else Path(normpath(path.parent / unquote(parts.path)))
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file():
                yield f"{path.relative_to(html)}: {link} leads nowhere"
            elif parts.fragment and there in parsed and unquote(parts.fragment) not in parsed[there].ids:
                yield f"{path.relative_to(html)}: {link} has no such anchor"


if __name__ == "__main__":
    sys.exit(main())
