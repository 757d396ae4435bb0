"""The documentation's site: each page has a place in it, and a link that leads nowhere is found."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
CHAOS = ROOT / "tests" / "laboratory" / "acceptance" / "test_chaos.py"


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_site"] = module
    spec.loader.exec_module(module)
    return module


def test_the_navigation_has_each_page_once(site: ModuleType) -> None:
    named = site.in_navigation()
    assert len(set(named)) == len(named)
    assert set(named) == {path.name for path in (ROOT / "docs").glob("*.md")} | {
        f"{name}.md" for name in site.GENERATED
    }


def test_links_out_of_the_folder_lead_to_pages_of_their_own(site: ModuleType) -> None:
    page = ROOT / "docs" / "claims.md"
    known = {page: "claims.md"}
    text, linked = site.page(page, known)
    assert "](../" not in text
    assert CHAOS in linked
    assert known[CHAOS] == "tree/tests/laboratory/acceptance/test_chaos.py.md"
    text, linked = site.page(CHAOS, known)
    assert "``````python\n" in text
    assert linked == []


def test_a_link_that_is_named_like_a_file_says_the_title_of_what_it_leads_to(site: ModuleType) -> None:
    docs = ROOT / "docs"
    assert site.titled("keys.md", "keys.md", docs) == (docs / "keys.md").read_text().splitlines()[0].removeprefix("# ")
    assert site.titled("start.md", "start.md#a-gap", docs) == "A gap"
    assert site.titled("the gaps", "start.md#a-gap", docs) == "the gaps"
    assert site.anchor_of("What has to be ordered (`sequencing/overlaps.py`)") == (
        "what-has-to-be-ordered-sequencingoverlapspy"
    )


def test_the_search_has_the_terms_of_the_glossary_with_places_to_go_to(site: ModuleType) -> None:
    found = {each["title"]: each for each in site.terms()}
    assert found["gap"]["text"].startswith("gap: Events that can no longer be delivered")
    assert found["node"]["location"] == found["sequencing node"]["location"] == "glossary.html#sequencing-node-node"
    text, _ = site.page(site.GLOSSARY, {site.GLOSSARY: "glossary.md", **dict.fromkeys([*site.DOCS.glob("*.md")], "x")})
    for each in found.values():
        assert f'<span id="{each["location"].partition("#")[2]}">' in text


def test_a_link_of_a_page_that_leads_nowhere_stops_the_build(
    site: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(site, "ROOT", tmp_path)
    page.write_text("```\n[code](nothing.md)\n```\n[page](nowhere.md)\n", encoding="utf-8")
    with pytest.raises(site.Broken, match=r"page.md: there is no nowhere.md"):
        site.page(page, {page: "page.md"})


def test_links_and_anchors_of_the_result_are_checked(site: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"><a href="b.html#there">1</a><a href="b.html#gone">2</a><a href="c.html">3</a>'
        '<a href="#top">4</a><a href="#bottom">5</a><img src="d.png"><a href="https://example.org/x#y">6</a>'
    )
    (tmp_path / "b.html").write_text('<h1 id="there">')
    assert list(site.wrong_links(tmp_path)) == [
        "a.html: b.html#gone has no such anchor",
        "a.html: c.html leads nowhere",
        "a.html: #bottom has no such anchor",
        "a.html: d.png leads nowhere",
    ]


def test_the_parts_for_those_who_use_gamecast_have_22_000_words_at_most() -> None:
    settings = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text(encoding="utf-8"))
    parts = {title: pages for part in settings["project"]["nav"] for title, pages in part.items()}
    assert list(parts) == ["Home", "Start", "Guide", "Run", "Understand", "Reference", "Laboratory"]
    pages = [parts["Home"], *parts["Start"], *parts["Guide"], *parts["Run"]]
    assert sum(len((ROOT / "docs" / page).read_text(encoding="utf-8").split()) for page in pages) <= 22_000
