from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon
from sklearn.metrics import balanced_accuracy_score

from attnprobe.evidence.statistics import f1_of
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.members import (
    balanced_accuracy,
    compared,
    difference,
    of_pairs,
    parts_of,
    parts_of_run,
    stability,
)
from attnprobe.findings.studies.criteria.exclusivity import chosen_adversary
from attnprobe.report.studies.drawing import draw_study
from attnprobe.results.directory import RunDirectory
from tests.findings.studies.invented import EXAMPLES, invented_run
from tests.small_runs import seal, seal_again

GUIDES = {
    "uniform": [0.60, 0.61, 0.62],
    "trained": [0.74, 0.75, 0.74],
    "base": [0.89, 0.90, 0.89],
    "adversary": [0.5, 0.6, 0.5],
}


def test_each_statement_is_decided_by_its_interval(study):
    reading = study(
        [0.83, 0.82, 0.84],
        [0.80, 0.78, 0.82],
        GUIDES,
        {0.0: (0.04, 0.1), 0.001: (0.06, 0.5), 0.1: (0.3, 0.65)},
    )
    found = {finding.claim.name: finding for finding in reading.findings}
    evidence = found["attention_is_needed"].evidence
    assert evidence.value == pytest.approx(0.03, abs=3e-3)  # of whole texts
    assert {name: finding.verdict for name, finding in found.items()} == {
        "attention_is_needed": Verdict.CANNOT_DECIDE,
        "seeds_attend_alike": Verdict.MEETS,
        "seeds_are_nearer_than_adversaries": Verdict.MEETS,
        "attention_guides": Verdict.MEETS,
        "adversary_guides_worse": Verdict.MEETS,
        "adversary_escapes": Verdict.MEETS,
    }
    assert (
        found["adversary_escapes"].claim.speaks == "neither"
    )  # that none is found would be no pass
    assert "λ = 0.001, chosen on the validation split" in reading.readings["adversary_escapes"]
    assert (
        "TVD below 0.090" in found["adversary_escapes"].claim.statement
    )  # λ = 0 has 0.04 of its own
    assert f"{evidence.value:.3f}" in reading.readings["attention_is_needed"]
    tables = list(reading.tables.values())
    published = dict(zip(tables[0]["model"], tables[0]["published (unverified)"], strict=True))
    assert published == {"learned attention": 0.831, "uniform attention": 0.822}
    assert tables[3].iloc[-1]["source"] == "published, unverified"


def test_other_numbers_give_other_verdicts(study):
    weak = {
        name: [at] * 5
        for name, at in {"uniform": 0.8, "trained": 0.8, "base": 0.6, "adversary": 0.6}.items()
    }
    reading = study(
        [0.9] * 5, [0.6] * 5, weak, {0.0: (0.04, 0.1), 0.1: (0.06, 0.2)}, seeds_jsd=0.65, alike=0.0
    )
    assert {finding.claim.name: finding.verdict for finding in reading.findings} == {
        "attention_is_needed": Verdict.MEETS,
        "seeds_attend_alike": Verdict.NO_DIFFERENCE,
        "seeds_are_nearer_than_adversaries": Verdict.FAILS,
        "attention_guides": Verdict.FAILS,
        "adversary_guides_worse": Verdict.CANNOT_DECIDE,
        "adversary_escapes": Verdict.FAILS,
    }
    assert "does not say that there is none" in reading.readings["adversary_escapes"]
    far_off = study([0.8, 0.8], [0.7, 0.7], weak, {0.1: (0.4, 0.6)})
    assert {f.claim.name: f.verdict for f in far_off.findings}["adversary_escapes"] == Verdict.FAILS


def test_the_difference_of_f1_is_paired_by_seed_and_text(tmp_path):
    of = {}
    to = {}
    for seed in range(3):
        for roles, name, f1 in ((of, "base", 0.85), (to, "uniform", 0.8)):
            invented_run(tmp_path / f"{name}{seed}", name, seed, f1=f1)
            roles[seed] = parts_of_run(tmp_path / f"{name}{seed}", f1_of)
    found = difference(of, to)
    alone = [f1_of(of[seed].sum(0)) - f1_of(to[seed].sum(0)) for seed in range(3)]
    assert found.value == pytest.approx(np.mean(alone))
    assert found.low < found.value < found.high
    swapped = difference(to, of)
    assert [-swapped.value, -swapped.high, -swapped.low] == pytest.approx(
        [found.value, found.low, found.high], abs=5e-3
    )


def test_balanced_accuracy_is_scikit_learns_and_a_constant_guess_gains_nothing(tmp_path):
    draw = np.random.default_rng(0)
    for classes in (2, 3):
        label = draw.choice(classes, 300, p=[0.8, *[0.2 / (classes - 1)] * (classes - 1)])
        said = draw.integers(classes, size=300)
        for name, prediction in (
            ("said", said),
            ("constant", np.zeros(300, int)),
            ("right", label),
        ):
            directory = tmp_path / f"{name}{classes}"
            invented_run(directory, "base", 0, f1=0.8, texts=300)
            path = directory / "examples/test.parquet"
            pd.read_parquet(path).assign(label=label, prediction=prediction).to_parquet(path)
            seal(
                directory,
                **RunDirectory(directory).manifest()
                | {"classes": [str(one) for one in range(classes)]},
            )
            found = balanced_accuracy(parts_of_run(directory, balanced_accuracy).sum(0))
            assert found == pytest.approx(balanced_accuracy_score(label, prediction))
            expected = {"constant": 1 / classes, "right": 1.0}.get(name, found)
            assert found == pytest.approx(expected)
    # several labels per text, by a plain loop over them
    given = draw.random((40, 3)) < 0.3
    guessed = draw.random((40, 3)) < 0.5
    parts = parts_of(given, guessed, balanced_accuracy, one_label=False)
    alone = [balanced_accuracy_score(given[:, one], guessed[:, one]) for one in range(3)]
    assert balanced_accuracy(parts.sum(0)) == pytest.approx(np.mean(alone))


def test_seeds_are_compared_with_every_order_of_the_others_weights():
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(4))
    q = generator.dirichlet(np.ones(4))
    jsd, shuffled, same, chance = compared([p], [q])[0]
    assert jsd == pytest.approx(jensenshannon(p, q) ** 2)
    orders = [jensenshannon(p, q[list(order)]) ** 2 for order in permutations(range(4))]
    assert shuffled == pytest.approx(np.mean(orders))
    assert (same, chance) == (float(p.argmax() == q.argmax()), 0.25)
    assert compared([np.array([0.0, 1.0])], [np.array([0.0, 1.0])])[0, 0] == 0


def test_an_even_attention_has_nothing_to_shuffle(tmp_path):
    for seed in range(3):
        invented_run(tmp_path / str(seed), "base", seed, f1=0.8)
        path = tmp_path / str(seed) / "examples/test.parquet"
        pd.read_parquet(path).assign(attention=[[0.125] * 8] * EXAMPLES).to_parquet(path)
        seal_again(tmp_path / str(seed))
    found = stability(of_pairs([tmp_path / str(seed) for seed in range(3)]))
    assert found.exceeds(0, 0.1) == "not informative"


def test_the_spread_over_seeds_is_the_median_per_example(study):
    reading = study([0.8] * 4, [0.8] * 4, {name: [0.7] * 4 for name in GUIDES}, {0.1: (0.1, 0.5)})
    table = next(
        table for caption, table in reading.tables.items() if caption.startswith("JSD of attention")
    )
    draws = [
        0.1 + np.random.default_rng([seed, len("base")]).normal(0, 0.01, EXAMPLES)
        for seed in (1, 2, 3)
    ]
    expected = np.median(np.clip(draws, 0, 0.69), axis=0)
    assert table["JSD, median over seeds"].iloc[0] == pytest.approx(expected.mean())
    assert table["examples"].tolist()[0] == EXAMPLES == sum(table["examples"].tolist()[1:])
    quarter = np.linspace(0.1, 0.9, EXAMPLES) < 0.25
    assert table["JSD, median over seeds"].iloc[1] == pytest.approx(expected[quarter].mean())


def test_the_adversary_is_chosen_by_the_validation_split(tmp_path):
    for name, (tvd, jsd) in {"a": (0.01, 0.3), "b": (0.05, 0.45), "c": (0.09, 0.6)}.items():
        invented_run(
            tmp_path / name, name, 0, f1=0.5, validation={"loss": 0.1, "tvd": tvd, "jsd": jsd}
        )
    paths = [tmp_path / name for name in "abc"]
    assert chosen_adversary(paths, 0.4) == tmp_path / "b"
    assert chosen_adversary(paths, 0.65) == tmp_path / "c"  # none passes: the farthest


def test_no_interval_of_f1_leaves_what_f1_can_be(study):
    """Student's interval of 0.99 and 0.90 alone reaches from 0.37 to 1.52."""
    found = study([0.99, 0.90], [0.02, 0.10], GUIDES, {0: (0.05, 0.1)})
    table = next(iter(found.tables.values()))
    assert table["F1 low"].tolist() == [pytest.approx(0.37, abs=0.03), 0]
    assert table["F1 high"].tolist()[0] == 1
    for axes in (
        drawn.axes[0] for figure, drawn in draw_study(found) if figure.name in ("uniform", "guide")
    ):
        assert all(0 <= one <= 1 for line in axes.lines for one in line.get_xdata())
        assert -0.05 <= axes.get_xlim()[0] < axes.get_xlim()[1] <= 1.05
    assert any(
        words.startswith("Over 1 further seed attention") for words in found.readings.values()
    )


def test_an_audit_without_the_search_or_of_one_seed_leaves_out_what_was_not_measured(study):
    full, reading = (
        study([0.8, 0.81, 0.79], [0.7, 0.71, 0.69], {}, {}, searched=one, of="audit")
        for one in (True, False)
    )
    names = ["attention_is_needed", "seeds_attend_alike", "seeds_are_nearer_than_adversaries"]
    assert [finding.claim.name for finding in full.findings] == names
    assert [finding.claim.name for finding in reading.findings] == names[:2]
    table = reading.tables["JSD of attention to the base's: other seeds"]
    other = full.tables[
        "JSD of attention to the base's: other seeds, and adversaries against single predictions"
    ]
    pd.testing.assert_frame_equal(
        table, other[table.columns]
    )  # the seeds' numbers are the same ones
    assert "needs the probe adversarial" in reading.notes[-1]
    alone = study([0.8], [0.7], {}, {}, of="audit")
    assert [[figure.name for figure in one.figures] for one in (reading, alone)] == [
        ["uniform", "seeds"],
        ["uniform"],
    ]
    assert "No other seed was trained" in alone.notes[-1]
    (finding,) = alone.findings
    assert finding.verdict == Verdict.CANNOT_DECIDE  # one seed says nothing of another training
