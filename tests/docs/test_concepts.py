"""docs/concepts.md has the questions of the verdict card, in its order, with the thresholds of the code."""

import re
from pathlib import Path

import pytest

from attnprobe.report import claims
from attnprobe.report.reading import readings
from attnprobe.report.readings import adversarial, permutation, single_weight
from attnprobe.report.studies import wiegreffe

PAGE = (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\w+): (.*?)(?=^##)", PAGE, re.M | re.S))


def test_the_questions_are_those_of_the_verdict_card():
    headings = {name.lower(): text.split("\n")[0] for name, text in SECTIONS.items()}
    assert {key: question.removesuffix("?") for key, question in claims.CRITERIA.items()} == {
        key: question.removesuffix("?") for key, question in headings.items()
    }
    assert list(headings) == list(claims.CRITERIA)


@pytest.mark.parametrize("part", ["**Measure", "**For it**", "**Critique.**"])
def test_every_question_has_its_parts(part):
    assert all(part in text for text in SECTIONS.values())


@pytest.mark.parametrize("name", SECTIONS)
def test_against_it_is_said_where_a_claim_is_against(name):
    found = [claim for one in readings().values() for claim in one.claims if claim.criterion == name.lower()]
    against = any(claim.speaks == "against" for claim in found)
    assert ("**Against it**" in SECTIONS[name]) == against


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Necessity", f"± {wiegreffe.MARGIN} F1"),
        ("Exclusivity", f"a mean above {permutation.SAME}"),
        ("Exclusivity", f"at a JSD above {adversarial.FAR} nats"),
        ("Exclusivity", f"passes a JSD of {wiegreffe.FAR} with a TVD below {wiegreffe.NEAR}"),
        ("Erasure", f"a τ-b above {single_weight.IN_ORDER}"),
    ],
)
def test_the_thresholds(name, sentence):
    assert sentence in " ".join(SECTIONS[name].split())


def test_how_few_are_too_few():
    assert f"fewer than {claims.FEWEST} texts or 2 seeds" in " ".join(PAGE.split())
