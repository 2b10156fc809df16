"""Every command of README.md and docs/ that starts a run composes as it stands, and its settings pass the checks that a run
makes before it begins. Those of docs/extending.md and docs/design.md are carried out by tests of their own."""

import re
import shlex
from pathlib import Path

import pytest

from attnprobe.core.errors import UserError
from attnprobe.runs.composition import resolved
from attnprobe.runs.validation import check
from tests.runs import composed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CARRIED_OUT = ("extending.md", "design.md")
NEEDS_A_PLUGIN = ("launcher=ray", "hydra/sweeper=optuna", "hydra.")
START = r"^(?:\w+=\S+ )*(?:python -m attnprobe|attnprobe run) (.+)$"


def commands_of(text):
    """The settings of every command within fences, lines that end in a backslash put together, comments left out."""
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S):
        for line in re.findall(START, block.replace("\\\n", " "), re.M):
            yield [word for word in shlex.split(line, comments=True) if word not in ("-m", "…")]


def first_of(word):
    """A sweep's first choice."""
    name, equals, value = word.partition("=")
    return word if value.startswith(("[", "{")) else name + equals + value.split(",")[0]


COMMANDS = [
    (page.name, words)
    for page in PAGES
    if page.name not in CARRIED_OUT
    for words in commands_of(page.read_text(encoding="utf-8"))
    if not any(word.startswith((*NEEDS_A_PLUGIN, "run=")) for word in words)
]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda one: one if isinstance(one, str) else None)
def test_a_command_composes_as_it_stands(page, words):
    check(resolved(composed(*map(first_of, words))))


def test_the_commands_are_found_and_a_wrong_one_is_refused():
    assert len(COMMANDS) > 12
    (words,) = commands_of(
        "```bash\nHERE=1 python -m attnprobe -m data=sst,imdb \\\n  model=lstm # why\n```\nattnprobe run a\n"
    )
    assert [first_of(word) for word in words] == ["data=sst", "model=lstm"]
    with pytest.raises(UserError, match=r"training\.epocs"):
        check(resolved(composed("data=sst", "+training.epocs=3")))
