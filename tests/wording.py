"""What our prose may not have: private words, and sentences in help that nobody reads to their end.

`./dev lint` runs it. `LIMITS` says how often words stand here from before: lower a number when you take some away.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

WORDS = {
    "anew": r"\banew\b",
    "tell of": r"\b(?:tell|tells|told|telling) of\b",
    "forsake": r"\bforsak\w+",
    "whoever": r"\bwhoever\b",
    "nobody": r"\bnobody\b",
    "reckon with": r"\breckon(?:s|ed)? with\b",
    "stand for leading": r"\bstand(?:s|ing)? for (?:leading|election)\b",
    "see to it": r"\bsee(?:s|n)? to it that\b",
    "who leads": r"\bwho(?:ever)? leads\b",
    "a private number for a paper": r"\bseed 00\d\b",
}
"""What it is called here → how it is found, whatever its case. See the glossary for the field's terms."""

LIMITS = {"anew": 28, "tell of": 5, "whoever": 11, "nobody": 64}
"""Word → in how many places it may stand: what is there from before, and no more."""

SENTENCE_WORDS_MAX = 30
LONG_SENTENCES_MAX = 0

SUFFIXES = {".py", ".md", ".js", ".lua", ".html"}
LEFT_OUT = {"CHANGELOG.md", "tests/wording.py"}


def files() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of what people wrote here."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        path = ROOT / name
        if path.suffix in SUFFIXES and name not in LEFT_OUT and path.exists():
            yield name, path.read_text(encoding="utf-8")


def helps(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each command's words and its help, with that of its options."""
    texts = [command.help or ""]
    texts += [option.help or "" for option in command.params if isinstance(option, click.Option)]
    for text in texts:
        yield " ".join(words), text
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from helps(found, (*words, name))


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a help text, without its examples, tables and lists."""
    for paragraph in text.split("\n\n"):
        if "\b" in paragraph or paragraph.lstrip().startswith("Exit status"):
            continue
        yield from re.split(r"(?<=[.:;?!])\s+", " ".join(paragraph.split()))


def main() -> int:
    """Print what there is too much of; return the exit status."""
    from cli.main import cli

    places: dict[str, list[str]] = {word: [] for word in WORDS}
    for name, text in files():
        for number, line in enumerate(text.splitlines(), start=1):
            for word, pattern in WORDS.items():
                places[word] += [f"{name}:{number}"] * len(re.findall(pattern, line, re.IGNORECASE))
    failed = False
    for word, found in places.items():
        limit = LIMITS.get(word, 0)
        if len(found) > limit:
            failed = True
            print(f"wording: {word!r} stands in {len(found)} places, and {limit} are allowed: {', '.join(found[-8:])}")
        elif len(found) < limit:
            print(f"wording: {word!r} stands in {len(found)} places only: lower its limit, {limit}")
    long = [
        (command, sentence)
        for command, text in helps(cli, ("gamecast",))
        for sentence in sentences(text)
        if len(sentence.split()) > SENTENCE_WORDS_MAX
    ]
    if len(long) > LONG_SENTENCES_MAX:
        failed = True
        for command, sentence in long:
            print(f"wording: a sentence of {len(sentence.split())} words in the help of {command}: {sentence}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
