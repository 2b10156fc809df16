"""Links lead to files and headings that are there; every command of README.md and docs/ composes as
it stands."""

import re
import shlex
from pathlib import Path

import pytest

from attnprobe.core.errors import UserError
from attnprobe.runs.composition import resolved
from attnprobe.runs.validation import configured
from tests.small_runs import composed

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]


def prose(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def links(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def anchors(page):
    """What the headings are called in links, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in links(page):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        assert path.is_relative_to(ROOT), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(path), (
            f"{page.name}: no heading {anchor} in {path.name}"
        )


def test_the_index_and_the_site_list_every_page():
    pages = {*DOCS.rglob("*.md")} - {DOCS / "README.md", *DOCS.glob("api/*.md")}
    listed = {DOCS / link for link in links(DOCS / "README.md")}
    assert listed >= pages

    configuration = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    navigation = configuration.partition("\nnav:\n")[2]
    for page in pages:
        path = page.relative_to(DOCS).as_posix()
        assert f" {path}\n" in navigation, page


def test_pictures_of_the_concepts_are_shown_and_small():
    pictures = {*(DOCS / "images").glob("concepts_*.png")}
    linked = set()
    for page in PAGES:
        linked |= {(page.parent / link).resolve() for link in links(page)}

    assert pictures
    assert pictures <= linked
    for picture in pictures:
        assert picture.stat().st_size < 60_000, picture


def test_the_documentation_begins_as_the_readme_does():
    readme, home = ((place / "README.md").read_text(encoding="utf-8") for place in (ROOT, DOCS))
    shared = readme.partition("## In Python")[0].replace("](docs/", "](")
    assert home.startswith(shared)
    assert len(readme.split()) < 700


CARRIED_OUT = ("extending.md", "design.md", "lightning.md")
NEEDS_A_PLUGIN = ("launcher=ray", "hydra/sweeper=optuna", "hydra.", "+experiment=papers")
"""What composes with a plug-in alone, or for a sweep alone (tests/runs/launching/test_grids.py)."""
START = r"^(?:\w+=\S+ )*(?:python -m attnprobe|attnprobe run) (.+)$"


def commands_of(text):
    """The settings of every command within fences, lines that end in a backslash put together,
    comments left out."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S):
        for line in re.findall(START, block.replace("\\\n", " "), re.M):
            yield [word for word in shlex.split(line, comments=True) if word not in ("-m", "…")]


def first_of(word):
    name, equals, value = word.partition("=")
    return word if value.startswith(("[", "{")) else name + equals + value.split(",")[0]


COMMANDS = [
    (page.name, words)
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if page.name not in CARRIED_OUT
    for words in commands_of(page.read_text(encoding="utf-8"))
    if not any(word.startswith((*NEEDS_A_PLUGIN, "run=")) for word in words)
]


@pytest.mark.parametrize(
    ("page", "words"), COMMANDS, ids=lambda value: value if isinstance(value, str) else None
)
def test_a_command_composes_as_it_stands(page, words):
    configured(resolved(composed(*map(first_of, words))))


def test_the_commands_are_found_and_a_wrong_one_is_refused():
    assert len(COMMANDS) > 12
    command = "HERE=1 python -m attnprobe -m data=sst,imdb \\\n  model=lstm # why"
    page = f"```bash\n{command}\n```\nattnprobe run a\n"
    (words,) = commands_of(page)
    assert [first_of(word) for word in words] == ["data=sst", "model=lstm"]
    with pytest.raises(UserError, match=r"training\.epocs"):
        configured(resolved(composed("data=sst", "+training.epocs=3")))
