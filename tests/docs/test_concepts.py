import re
from pathlib import Path

from attnprobe.evidence import claims, deciding_words
from attnprobe.evidence import statistics as rare
from attnprobe.evidence.evidence import LEAST_GAIN
from attnprobe.findings import members as seeds
from attnprobe.findings.lines import LINES
from attnprobe.findings.studies.criteria import statements
from attnprobe.probes import adversarial, agreement, permutation, plausibility, skill
from attnprobe.readings.registry import readings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\w+): (.*?)(?=^##)", PAGE, re.M | re.S))


def test_the_questions_are_those_of_the_verdict_card_and_say_their_level_and_all_parts():
    headings = {name.lower(): text.split("\n")[0] for name, text in SECTIONS.items()}
    levels = {
        name: " and ".join(level for of, level in LINES if of == name) for name in claims.CRITERIA
    }
    levels = {
        name: level.replace("state and word", "state, and word") for name, level in levels.items()
    }
    assert headings == {
        name: f"{question} ({levels[name]})" for name, question in claims.CRITERIA.items()
    }
    assert list(headings) == list(claims.CRITERIA)
    for part in ("**Measure", "**Meets**", "**Critique.**"):
        assert all(part in text for text in SECTIONS.values())


def test_every_line_of_the_card_has_one_primary_claim_at_most_and_those_of_one_run_have_one():
    primary = [
        claim for reading in readings().values() for claim in reading.claims if claim.primary
    ]
    lines = [(claim.criterion, claim.level) for claim in primary]
    study_places = {("necessity", "model"), ("stability", "model"), ("leak", "model")}
    assert len(set(lines)) == len(lines)
    assert set(lines) == set(LINES) - study_places
    assert all(claim.smallest > 0 for claim in primary)


def test_every_threshold_on_the_page_is_the_codes():
    for name, sentence in (
        ("Necessity", f"{statements.MARGIN} at least"),
        ("Stability", f"above {seeds.SMALLEST}"),
        ("Agreement", f"skill above {agreement.SMALLEST}"),
        ("Agreement", f"by less than τ = {agreement.CEILING}"),
        ("Exclusivity", f"a mean above {permutation.SAME}"),
        ("Exclusivity", f"at a JSD above {adversarial.FAR} nats"),
        (
            "Erasure",
            f"skill above {skill.LEAST_SKILL} for states; "
            f"share above {deciding_words.LEAST_SHARE} for words",
        ),
        ("Plausibility", f"above {plausibility.SMALLEST}"),
    ):
        assert sentence in " ".join(SECTIONS[name].split()), name
    words = " ".join(PAGE.split())
    assert f"fewer than {rare.FEWEST_NONZERO} are other than 0" in words
    assert f"best and null are within {LEAST_GAIN} of each other" in words


def test_every_importance_has_a_place_in_the_table_of_methods():
    text = (
        (ROOT / "docs/results/attributions.md")
        .read_text()
        .split("## The methods")[1]
        .split("\n## ")[0]
    )
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(path.stem for path in (ROOT / "conf/importance").glob("*.yaml"))
