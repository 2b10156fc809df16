"""The runs of a study side by side: scores over texts and seeds, and whether seeds attend alike."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import jensenshannon
from sklearn.metrics import balanced_accuracy_score

from attnprobe.evidence.statistics import f1_of
from attnprobe.findings.members import (
    balanced_accuracy,
    compare_attentions,
    compare_pairs_of_runs,
    difference,
    parts_of,
    parts_of_run,
    stability,
)
from attnprobe.results.directory import RunDirectory
from tests.findings.studies.invented import EXAMPLES, invented_run
from tests.small_runs import seal, seal_again


def parts_by_seed(folder, role, f1):
    parts = {}
    for seed in range(3):
        run = folder / f"{role}{seed}"
        invented_run(run, role, seed, f1=f1)
        parts[seed] = parts_of_run(run, f1_of)
    return parts


def test_the_difference_of_f1_is_paired_by_seed_and_text(tmp_path):
    base = parts_by_seed(tmp_path, "base", 0.85)
    uniform = parts_by_seed(tmp_path, "uniform", 0.8)
    gain = difference(base, uniform)
    gains = []
    for seed in range(3):
        base_f1 = f1_of(base[seed].sum(0))
        uniform_f1 = f1_of(uniform[seed].sum(0))
        gains.append(base_f1 - uniform_f1)
    assert gain.value == pytest.approx(np.mean(gains))
    assert gain.low < gain.value < gain.high
    loss = difference(uniform, base)
    assert [-loss.value, -loss.high, -loss.low] == pytest.approx(
        [gain.value, gain.low, gain.high], abs=5e-3
    )


def balanced_accuracy_of(folder, label, prediction, classes):
    """Of a run with these labels and predictions."""
    invented_run(folder, "base", 0, f1=0.8, texts=len(label))
    path = folder / "examples/test.parquet"
    pd.read_parquet(path).assign(label=label, prediction=prediction).to_parquet(path)
    manifest = RunDirectory(folder).manifest()
    seal(folder, **manifest | {"classes": [str(number) for number in range(classes)]})
    return balanced_accuracy(parts_of_run(folder, balanced_accuracy).sum(0))


@pytest.mark.parametrize("classes", [2, 3])
def test_balanced_accuracy_is_scikit_learns_and_a_constant_guess_gains_nothing(tmp_path, classes):
    draw = np.random.default_rng(classes)
    share = np.full(classes, 0.2 / (classes - 1))
    share[0] = 0.8
    label = draw.choice(classes, 300, p=share)
    prediction = draw.integers(classes, size=300)
    accuracy = balanced_accuracy_of(tmp_path / "random", label, prediction, classes)
    assert accuracy == pytest.approx(balanced_accuracy_score(label, prediction))
    constant = np.zeros(300, int)
    accuracy = balanced_accuracy_of(tmp_path / "constant", label, constant, classes)
    assert accuracy == pytest.approx(balanced_accuracy_score(label, constant))
    assert accuracy == pytest.approx(1 / classes)
    assert balanced_accuracy_of(tmp_path / "right", label, label, classes) == pytest.approx(1)


def test_balanced_accuracy_of_several_labels_is_the_mean_over_them():
    draw = np.random.default_rng(0)
    label = draw.random((40, 3)) < 0.3
    prediction = draw.random((40, 3)) < 0.5
    parts = parts_of(label, prediction, balanced_accuracy, one_label=False)
    columns = [
        balanced_accuracy_score(label[:, number], prediction[:, number]) for number in range(3)
    ]
    assert balanced_accuracy(parts.sum(0)) == pytest.approx(np.mean(columns))


def test_seeds_are_compared_with_every_order_of_the_others_weights():
    generator = np.random.default_rng(0)
    p = generator.dirichlet(np.ones(4))
    q = generator.dirichlet(np.ones(4))
    likeness = compare_attentions(p, q)
    assert likeness.jsd == pytest.approx(jensenshannon(p, q) ** 2)
    distances = np.array([jensenshannon(p, shuffled) for shuffled in permutations(q)])
    mean_divergence = np.mean(distances**2)
    is_same_top = p.argmax() == q.argmax()
    assert likeness.jsd_of_shuffle == pytest.approx(mean_divergence)
    assert likeness.same_top == is_same_top
    assert likeness.same_top_by_chance == 0.25


def test_the_same_attention_is_no_distance_away():
    attention = np.array([0.0, 1.0])
    assert compare_attentions(attention, attention).jsd == 0


def test_an_even_attention_has_nothing_to_shuffle(tmp_path):
    runs = [tmp_path / str(seed) for seed in range(3)]
    for seed, run in enumerate(runs):
        invented_run(run, "base", seed, f1=0.8)
        path = run / "examples/test.parquet"
        examples = pd.read_parquet(path)
        even = [0.125] * 8
        examples.assign(attention=[even] * EXAMPLES).to_parquet(path)
        seal_again(run)
    assert stability(compare_pairs_of_runs(runs)).exceeds(0, 0.1) == "not informative"
