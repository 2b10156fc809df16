import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from attnprobe.evidence.verdicts import Verdict
from attnprobe.report.studies.drawing import draw_study
from tests.findings.studies.invented import EXAMPLES, noise_of

GUIDES = {
    "uniform": [0.60, 0.61, 0.62],
    "trained": [0.74, 0.75, 0.74],
    "base": [0.89, 0.90, 0.89],
    "adversary": [0.5, 0.6, 0.5],
}
WEAK_GUIDES = {
    "uniform": [0.8] * 5,
    "trained": [0.8] * 5,
    "base": [0.6] * 5,
    "adversary": [0.6] * 5,
}


def verdicts(reading):
    return {finding.claim.name: finding.verdict for finding in reading.findings}


@pytest.fixture(scope="module")
def strong(study):
    """A study in which all claims but one hold."""
    return study(
        [0.83, 0.82, 0.84],
        [0.80, 0.78, 0.82],
        GUIDES,
        {0.0: (0.04, 0.1), 0.001: (0.06, 0.5), 0.1: (0.3, 0.65)},
    )


def test_each_statement_is_decided_by_its_interval(strong):
    assert verdicts(strong) == {
        "attention_is_needed": Verdict.CANNOT_DECIDE,
        "seeds_attend_alike": Verdict.MEETS,
        "seeds_are_nearer_than_adversaries": Verdict.MEETS,
        "attention_guides": Verdict.MEETS,
        "adversary_guides_worse": Verdict.MEETS,
        "adversary_escapes": Verdict.MEETS,
    }


def test_a_statement_stands_beside_its_number(strong):
    findings = {finding.claim.name: finding for finding in strong.findings}
    evidence = findings["attention_is_needed"].evidence
    assert evidence.value == pytest.approx(0.03, abs=3e-3)  # of whole texts
    assert f"{evidence.value:.3f}" in strong.readings["attention_is_needed"]
    escape = findings["adversary_escapes"].claim
    assert escape.speaks == "neither"  # that none is found would be no pass
    assert "TVD below 0.090" in escape.statement  # λ = 0 has 0.04 of its own
    assert "λ = 0.001, chosen on the validation split" in strong.readings["adversary_escapes"]


def test_an_open_difference_is_not_called_none_where_its_interval_is_above_0(study):
    """0.1 is above 0 by its whole interval, but not above what another seed makes: 0.06."""
    reading = study([0.86, 0.74, 0.80, 0.86, 0.74, 0.80], [0.70] * 6, {}, {}, tests=["uniform"])
    (finding,) = reading.findings
    assert 0 < finding.evidence.low < finding.claim.smallest < finding.evidence.value
    assert finding.claim.smallest == pytest.approx(0.054, abs=5e-3)
    sentence = reading.readings["attention_is_needed"]
    assert f"more than another seed makes ({finding.claim.smallest:g}) is open" in sentence
    assert "none" not in sentence


def test_what_another_seed_makes_of_guidance_is_of_the_guided_model(study):
    """However much or little the base varies, or however few of it were trained."""
    f1 = np.array([0.5, 0.6, 0.7])
    guides = GUIDES | {"base": f1.tolist()}
    recall = f1 / (2 - f1)  # texts of class 1 alone are missed
    spread = np.std((1 + recall) / 2, ddof=1)
    margins = []
    for base, tests in (([0.8] * 3, ["guide", "seeds"]), ([0.9], ["guide"])):
        reading = study(base, [], guides, {0.1: (0.1, 0.5)}, tests=tests)
        margins += [
            finding.claim.smallest
            for finding in reading.findings
            if finding.claim.criterion == "leak"
        ]
    assert margins == [pytest.approx(spread, abs=2e-3)] * 4


def test_only_a_margin_that_seeds_make_is_said_to_be_theirs(study):
    """Seeds that all have an F1 of 0.8 make no difference, and 0.01 is asked for all the same."""
    guides = {guide: [0.7] * 4 for guide in GUIDES}
    reading = study([0.8] * 4, [0.8] * 4, guides, {0.1: (0.1, 0.5)})
    for finding in reading.findings:
        assert "another seed makes" not in finding.claim.quantity
    for name in ("attention_is_needed", "attention_guides", "adversary_guides_worse"):
        assert "more than 0.01" in reading.readings[name]


def test_published_numbers_stand_in_the_tables(strong):
    tables = list(strong.tables.values())
    published = dict(zip(tables[0]["model"], tables[0]["published (unverified)"], strict=True))
    assert published == {"learned attention": 0.831, "uniform attention": 0.822}
    assert tables[3].iloc[-1]["source"] == "published, unverified"


def test_other_numbers_give_other_verdicts(study):
    reading = study(
        [0.9] * 5,
        [0.6] * 5,
        WEAK_GUIDES,
        {0.0: (0.04, 0.1), 0.1: (0.06, 0.2)},
        seeds_jsd=0.65,
        alike=0.0,
    )
    assert verdicts(reading) == {
        "attention_is_needed": Verdict.MEETS,
        "seeds_attend_alike": Verdict.NO_DIFFERENCE,
        "seeds_are_nearer_than_adversaries": Verdict.FAILS,
        "attention_guides": Verdict.FAILS,
        "adversary_guides_worse": Verdict.CANNOT_DECIDE,
        "adversary_escapes": Verdict.FAILS,
    }
    assert "does not say that there is none" in reading.readings["adversary_escapes"]


def test_no_claim_that_equal_weights_meet_speaks_for_attention(study):
    """Their seeds attend alike, a search gets away from them, and they guide as equal weights do,
    which a far adversary's weights do not."""
    guides = GUIDES | {"base": GUIDES["uniform"]}
    reading = study(
        [0.8, 0.82, 0.81],
        [0.8, 0.82, 0.81],
        guides | {"adversary": [0.2, 0.2, 0.2]},
        {0.0: (0.04, 0.1), 0.001: (0.06, 0.5)},
        seeds_jsd=0.0,
        flatness=1e9,
    )
    met = {
        finding.claim.name: finding.claim.speaks
        for finding in reading.findings
        if finding.verdict == Verdict.MEETS
    }
    assert met == {
        "seeds_are_nearer_than_adversaries": "neither",
        "adversary_guides_worse": "neither",
        "adversary_escapes": "neither",
    }


def test_an_adversary_whose_predictions_move_far_does_not_escape(study):
    reading = study([0.8, 0.8], [0.7, 0.7], WEAK_GUIDES, {0.1: (0.4, 0.6)})
    assert verdicts(reading)["adversary_escapes"] == Verdict.FAILS


def test_figures_of_f1_show_the_intervals_of_their_tables(study):
    """Over texts and seeds: that over the seeds alone may be half as wide."""
    reading = study([0.81, 0.8, 0.79], [0.71, 0.7, 0.69], WEAK_GUIDES, {0.1: (0.1, 0.5)})
    means = {}
    for figure in reading.figures:
        means |= getattr(figure, "mean", {})
    tables = [table for table in reading.tables.values() if "F1 low" in table and "model" in table]
    in_tables = pd.concat(tables)[["F1", "F1 low", "F1 high"]].itertuples(index=False, name=None)
    in_figures = [(mean.value, mean.low, mean.high) for mean in means.values()]
    assert len(in_figures) == 6
    assert sorted(in_figures) == sorted(in_tables)


def test_an_open_escape_is_called_open(study):
    """A TVD of 0.0995 where 0.1 is allowed, give or take 0.001."""
    reading = study([0.8, 0.8], [0.7, 0.7], WEAK_GUIDES, {0.1: (0.0995, 0.6)})
    assert verdicts(reading)["adversary_escapes"] == Verdict.CANNOT_DECIDE
    sentence = reading.readings["adversary_escapes"]
    assert "is open: with λ = 0.1" in sentence
    assert "below 0.100 they count as the same" in sentence


def test_plain_distillation_is_no_adversary(study):
    """It is near in its predictions and far in its attention, and λ = 0.1 is what is asked for."""
    reading = study([0.8, 0.8], [0.7, 0.7], WEAK_GUIDES, {0.0: (0.02, 0.6), 0.1: (0.3, 0.65)})
    assert verdicts(reading)["adversary_escapes"] == Verdict.FAILS
    assert "with λ = 0.1, chosen" in reading.readings["adversary_escapes"]


def test_distillation_alone_finds_no_adversary(study):
    reading = study([0.8, 0.8], [0.7, 0.7], WEAK_GUIDES, {0.0: (0.02, 0.6)})
    assert "adversary_escapes" not in verdicts(reading)
    assert "λ above 0" in reading.notes[-1]
    assert "adversary" in [figure.name for figure in reading.figures]


def test_the_spread_over_seeds_is_the_median_per_example(study):
    guides = {guide: [0.7] * 4 for guide in GUIDES}
    reading = study([0.8] * 4, [0.8] * 4, guides, {0.1: (0.1, 0.5)})
    (caption,) = [name for name in reading.tables if name.startswith("JSD of attention")]
    table = reading.tables[caption]
    jsd_by_seed = []
    for seed in (1, 2, 3):
        noise = noise_of("base", seed, tvd=0.05).normal(0, 0.01, EXAMPLES)
        jsd_by_seed.append(0.1 + noise)
    medians = np.median(np.clip(jsd_by_seed, 0, 0.69), axis=0)
    first_quarter = np.linspace(0.1, 0.9, EXAMPLES) < 0.25

    overall_jsd, first_quarter_jsd, *_ = table["JSD, median over seeds"]
    assert overall_jsd == pytest.approx(medians.mean())
    assert first_quarter_jsd == pytest.approx(medians[first_quarter].mean())
    examples, *examples_of_quarters = table["examples"]
    assert examples == EXAMPLES == sum(examples_of_quarters)


@pytest.fixture(scope="module")
def extreme(study):
    """Student's interval of 0.99 and 0.90 alone reaches from 0.37 to 1.52."""
    return study([0.99, 0.90], [0.02, 0.10], GUIDES, {0: (0.05, 0.1)})


def test_no_interval_of_f1_leaves_what_f1_can_be(extreme):
    table = next(iter(extreme.tables.values()))
    assert table["F1 low"].tolist() == [pytest.approx(0.37, abs=0.03), 0]
    assert table["F1 high"].tolist()[0] == 1
    figures = {figure.name: drawn for figure, drawn in draw_study(extreme)}
    for name in ("uniform", "guide"):
        (axes,) = figures[name].axes
        assert all(0 <= f1 <= 1 for line in axes.lines for f1 in line.get_xdata())
        assert -0.05 <= axes.get_xlim()[0] < axes.get_xlim()[1] <= 1.05


def test_one_further_seed_is_spoken_of_as_one(extreme):
    sentences = extreme.readings.values()
    assert any(words.startswith("Over 1 further seed attention") for words in sentences)


AUDIT_CLAIMS = ["attention_is_needed", "seeds_attend_alike", "seeds_are_nearer_than_adversaries"]
SEEDS_TABLE = "JSD of attention to the base's: other seeds"


@pytest.fixture
def audit(study):
    """An audit of three seeds, with or without the search for adversaries."""

    def read(searched):
        f1 = ([0.8, 0.81, 0.79], [0.7, 0.71, 0.69])
        return study(*f1, {}, {}, searched=searched, of="audit")

    return read


def test_an_audit_answers_what_it_measured(audit):
    assert list(verdicts(audit(searched=True))) == AUDIT_CLAIMS


def test_an_audit_without_the_search_leaves_out_the_adversaries(audit):
    with_search = audit(searched=True)
    reading = audit(searched=False)
    assert list(verdicts(reading)) == AUDIT_CLAIMS[:2]
    table = reading.tables[SEEDS_TABLE]
    both = with_search.tables[f"{SEEDS_TABLE}, and adversaries against single predictions"]
    assert_frame_equal(table, both[table.columns])  # the seeds' numbers are the same
    assert "needs the probe adversarial" in reading.notes[-1]
    assert [figure.name for figure in reading.figures] == ["uniform", "seeds"]


def test_an_audit_of_one_seed_decides_nothing_about_trainings(study):
    reading = study([0.8], [0.7], {}, {}, of="audit")
    assert [figure.name for figure in reading.figures] == ["uniform"]
    assert "No other seed was trained" in reading.notes[-1]
    (finding,) = reading.findings
    assert finding.verdict == Verdict.CANNOT_DECIDE
