import math
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from scipy import stats
from torch import Tensor
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.core.readout import Readout
from attnprobe.measures import jensen_shannon
from attnprobe.probes.adversarial import (
    Adversarial,
    exclusivity_by_epsilon,
    shares_along,
    unconstrained_maximum,
)
from attnprobe.results.pivot import REPEATS
from tests.probes.tables import measured, values
from tests.probes.texts import numbers_of
from tests.toys import toy_batch, toy_classifier, toy_readout

EPSILONS = [0.01, 0.05, 0.2]


@dataclass(frozen=True)
class Reported:
    """What the probe says of a readout.

    Attributes:
        readout: the frozen model.
        numbers: metric → its values in float64.
    """

    readout: Readout
    numbers: dict[str, Tensor]

    def __getitem__(self, metric):
        return self.numbers[metric]


def reported(lengths, *, classes=2, task=Task.SINGLE_LABEL, question=False, spread=4, **settings):
    """The probe on texts of these lengths, with a search of a few steps unless it is set."""
    classifier = toy_classifier(classes=classes, task=task, question=question, spread=spread)
    batch = toy_batch(lengths, question=question)
    _, readout = toy_readout(classifier, batch)
    probe = Adversarial(**{"steps": 60, "restarts": 3} | settings)
    numbers = {name: value.double() for name, value in values(probe, readout).items()}
    return Reported(readout, numbers)


@pytest.fixture(scope="module")
def three_texts():
    return reported([6, 9, 3], epsilon=0.05)


@pytest.mark.parametrize("name", ["found", "optimum"])
def test_what_is_reported_is_an_attention_within_epsilon(three_texts, name):
    readout = three_texts.readout
    attention = three_texts[f"{name}_attention"]
    prediction = readout.predict(attention)
    distance = (prediction - readout.prediction()).abs().sum(-1) / 2
    assert_close(attention.sum(-1), torch.ones(3).double())
    assert (attention[~readout.content] == 0).all()
    assert (distance <= 0.05).all()
    assert_close(three_texts[f"{name}_tvd"], distance)


@pytest.mark.parametrize("name", ["found", "optimum"])
def test_what_is_reported_is_true_of_the_attention_that_is_reported(three_texts, name):
    readout = three_texts.readout
    attention = three_texts[f"{name}_attention"]
    divergence = jensen_shannon(attention, readout.attention)
    is_top_changed = attention.argmax(-1) != readout.attention.argmax(-1)
    assert_close(three_texts[f"{name}_jsd"], divergence)
    assert_close(three_texts[f"max_attention_{name}"], attention.amax(-1))
    assert_close(three_texts[f"top_token_changed_{name}"], is_top_changed.double())


def test_the_reached_share_is_of_an_exact_optimum_with_two_classes(three_texts):
    share = three_texts["found_jsd"] / three_texts["optimum_jsd"]
    assert_close(three_texts["reached_share"], share)
    assert (three_texts["is_exact"] == 1).all()


def assert_ordered(result):
    """What was found, the optimum, and its bound."""
    assert (result["found_jsd"] <= result["optimum_jsd"] + 1e-12).all()
    assert (result["optimum_jsd"] <= result["upper_bound"] + 1e-9).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_the_optimum_is_at_least_what_was_found_and_at_most_its_bound(classes):
    lengths = list(range(2, 14))
    result = reported(lengths, classes=classes, spread=6, steps=300)
    assert_ordered(result)
    assert (result["upper_bound"] <= math.log(2)).all()
    assert (result["found_jsd"] > 0).any()


def test_one_word_has_no_other_attention():
    result = reported([1, 4], spread=1)
    text = numbers_of(result.numbers, 0)
    assert text["found_jsd"] == 0
    assert text["optimum_jsd"] == 0
    assert text["reached_share"] == 1
    assert not any(value[0].isnan().any() for value in result.numbers.values())


def test_where_nothing_is_exact_the_search_stands_and_the_table_says_so():
    result = reported([6, 4], classes=3, question=True, steps=200, epsilon=0.05)
    assert (result["is_exact"] == 0).all()
    assert torch.equal(result["optimum_jsd"], result["found_jsd"])
    assert (result["found_jsd"] > 0.05).all()
    assert result["reached_share"].isnan().all()
    assert (result["upper_bound"] >= result["found_jsd"]).all()


def test_several_labels_are_bracketed_more_tightly_than_by_any_attention_at_all():
    result = reported(
        [6, 4, 12],
        classes=3,
        task=Task.MULTI_LABEL,
        spread=40,
        steps=200,
        epsilon=0.01,
    )
    anything = unconstrained_maximum(result.readout)
    assert_ordered(result)
    assert (result["optimum_tvd"] <= 0.01).all()
    assert (result["upper_bound"] < anything - 0.05).any()
    assert not result["reached_share"].isnan().any()


def test_without_restarts_only_the_exact_side_is_reported():
    exact = reported([6, 4], restarts=0)
    searched = reported([6, 4])
    left_out = set(searched.numbers) - set(exact.numbers)
    assert {"found_jsd", "reached_share", "feasible_restarts"} <= left_out
    assert not any("found" in name for name in exact.numbers)
    assert_close(exact["optimum_jsd"], searched["optimum_jsd"])


@pytest.fixture(scope="module")
def curve():
    """The optimum along ε."""
    _, readout = toy_readout(toy_classifier(spread=4), toy_batch([6, 4]))
    probe = Adversarial(restarts=0, epsilon=0.05, curve=[0.2, 0.01])
    measurements = measured(probe, readout)
    return measurements["optimum_jsd_within"]


def test_the_curve_goes_through_all_tolerances_in_order(curve):
    assert curve.step.tolist() == EPSILONS
    assert (curve.value.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_optimum_along_epsilon_is_that_of_each_tolerance_by_itself(curve, epsilon):
    result = reported([6, 4], restarts=0, epsilon=epsilon)
    optimum = curve.value[:, EPSILONS.index(epsilon)]
    assert_close(optimum, result["optimum_jsd"])


def test_there_is_no_curve_without_tolerances():
    result = reported([6, 4], restarts=0, curve=[])
    assert "optimum_jsd_within" not in result.numbers


def test_there_is_no_curve_with_more_than_two_classes():
    result = reported([6, 4], restarts=0, classes=3)
    assert "optimum_jsd_within" not in result.numbers


def along(seeds=1, texts=40):
    """Farthest attentions that grow with ε; a third of the texts is at ln 2 from the start."""
    rows = []
    for seed, text, epsilon in product(range(seeds), range(texts), EPSILONS):
        grown = 0.1 + epsilon * (text + 1) / 10
        row = {
            "run_id": f"r{seed}",
            "experiment": "jain",
            "data": "sst",
            "model": "lstm",
            "seed": seed,
            "split": "test",
            "probe": "adversarial",
            "metric": "optimum_jsd_within",
            "example_id": text,
            "step": epsilon,
            "value": min(grown, np.log(2)) if text % 3 else np.log(2),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def wilsons_interval(count, n):
    z = 1.959964
    total = n + z**2
    middle = count + z**2 / 2
    variance = count * (n - count) / n + z**2 / 4
    half_width = z * np.sqrt(variance)
    return [(middle - half_width) / total, (middle + half_width) / total]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_shares_along_epsilon_are_counted_with_wilsons_interval(epsilon):
    results = along()
    divergences = results.loc[results["step"] == epsilon, "value"]
    count = int((divergences <= 0.4).sum())

    row = shares_along(results, 0.4).set_index("epsilon").loc[epsilon]

    assert row["share"] == count / 40
    assert [row["low"], row["high"]] == pytest.approx(wilsons_interval(count, 40))


def test_seeds_are_no_further_texts_along_epsilon():
    assert_frame_equal(shares_along(along(seeds=3), 0.4), shares_along(along(), 0.4))


def test_seeds_that_differ_widen_the_interval_along_epsilon():
    """Shares of 1, 0 and one between: Student's interval of three such runs is wider than all."""
    results = along(seeds=3)
    results.loc[results["seed"] == 0, "value"] = 0.0
    results.loc[results["seed"] == 1, "value"] = np.log(2)
    for row in shares_along(results, 0.4).itertuples():
        runs = [1, 0, 3 * row.share - 1]
        half_width = stats.t.ppf(0.975, 2) * stats.sem(runs)
        assert row.low <= max(0, row.share - half_width)
        assert row.high >= min(1, row.share + half_width)


def test_texts_that_are_there_twice_count_once_along_epsilon():
    results = along()
    results.attrs = {REPEATS: {"r0": (3, 5)}}
    figure = exclusivity_by_epsilon(results, None)
    assert figure.axes[0].get_title(loc="left").endswith("n = 38")
