"""Links between the pages lead to files and headings that are there, and every page is in the index."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def prose(page):
    """The text without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(page):
    """Relative targets of links and pictures."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page):
    """What the headings are called in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        assert path.is_relative_to(ROOT), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(path), f"{page.name}: no heading {anchor} in {path.name}"


def test_the_index_lists_every_page_and_the_pictures_are_shown_and_small():
    pages = {*DOCS.rglob("*.md")} - {DOCS / "README.md", *DOCS.glob("api/*.md")}
    assert {DOCS / link for link in links(DOCS / "README.md")} >= pages
    shown = {(page.parent / link).resolve() for page in PAGES for link in links(page)}
    pictures = {*(DOCS / "images").glob("concepts_*.png")}
    assert set() < pictures <= shown
    assert max(picture.stat().st_size for picture in pictures) < 60_000


def test_the_documentation_begins_as_the_readme_does():
    readme, home = ((place / "README.md").read_text(encoding="utf-8") for place in (ROOT, DOCS))
    shared = readme.partition("## In Python")[0].replace("](docs/", "](")
    assert home.startswith(shared)
    assert len(readme.split()) < 700
