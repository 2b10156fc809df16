import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.core.randomness import Draws
from attnprobe.measures import jensen_shannon
from attnprobe.probes.adversarial import Adversarial, shares_along, unconstrained_maximum
from tests.probes.tables import values
from tests.toys import toy_batch, toy_classifier, toy_readout


def measured(readout, **settings):
    numbers = values(Adversarial(**{"steps": 60, "restarts": 3} | settings), readout)
    return {name: value.double() for name, value in numbers.items()}


@pytest.mark.parametrize("name", ["found", "optimum"])
def test_what_is_reported_is_true_of_the_attention_that_is_reported(name):
    _, readout = toy_readout(toy_classifier(spread=4), toy_batch([6, 9, 3]))
    result = measured(readout, epsilon=0.05)
    attention = result[f"{name}_attention"]
    assert_close(attention.sum(-1), torch.ones(3).double())
    assert (attention[~readout.content] == 0).all()

    jsd = jensen_shannon(attention, readout.attention)
    assert_close(result[f"{name}_jsd"], jsd)
    distance = 0.5 * (readout.predict(attention) - readout.prediction()).abs().sum(-1)
    assert_close(result[f"{name}_tvd"], distance)
    assert (distance <= 0.05).all()

    assert_close(result[f"max_attention_{name}"], attention.amax(-1))
    changed = attention.argmax(-1) != readout.attention.argmax(-1)
    assert torch.equal(result[f"top_token_changed_{name}"], changed.double())


def test_the_reached_share_is_of_an_exact_optimum_with_two_classes():
    _, readout = toy_readout(toy_classifier(spread=4), toy_batch([6, 9, 3]))
    result = measured(readout, epsilon=0.05)
    assert_close(result["reached_share"], result["found_jsd"] / result["optimum_jsd"])
    assert (result["is_exact"] == 1).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_the_optimum_is_at_least_what_was_found_and_at_most_its_bound(classes):
    lengths = list(range(2, 14))
    _, readout = toy_readout(toy_classifier(classes=classes, spread=6), toy_batch(lengths))
    result = measured(readout, steps=300)
    assert (result["found_jsd"] <= result["optimum_jsd"] + 1e-12).all()
    assert (result["optimum_jsd"] <= result["upper_bound"] + 1e-9).all()
    assert (result["upper_bound"] <= math.log(2)).all()
    assert (result["found_jsd"] > 0).any()


def test_one_word_has_no_other_attention():
    result = measured(toy_readout(toy_classifier(), toy_batch([1, 4]))[1])
    assert result["found_jsd"][0] == result["optimum_jsd"][0] == 0
    assert result["reached_share"][0] == 1
    assert not any(value[0].isnan().any() for value in result.values())


def test_where_nothing_is_exact_the_search_stands_and_the_table_says_so():
    classifier = toy_classifier(classes=3, question=True, spread=4)
    _, readout = toy_readout(classifier, toy_batch([6, 4], question=True))
    result = measured(readout, steps=200, epsilon=0.05)
    assert (result["is_exact"] == 0).all()
    assert torch.equal(result["optimum_jsd"], result["found_jsd"])
    assert (result["found_jsd"] > 0.05).all()
    assert result["reached_share"].isnan().all()
    assert (result["upper_bound"] >= result["found_jsd"]).all()


def test_several_labels_are_bracketed_more_tightly_than_by_any_attention_at_all():
    classifier = toy_classifier(classes=3, task=Task.MULTI_LABEL, spread=40)
    _, readout = toy_readout(classifier, toy_batch([6, 4, 12]))
    result = measured(readout, steps=200, epsilon=0.01)
    assert (result["found_jsd"] <= result["optimum_jsd"] + 1e-12).all()
    assert (result["optimum_jsd"] <= result["upper_bound"] + 1e-9).all()
    assert (result["optimum_tvd"] <= 0.01).all()
    assert (result["upper_bound"] < unconstrained_maximum(readout) - 0.05).any()
    assert not result["reached_share"].isnan().any()


def test_without_restarts_only_the_exact_side_is_reported():
    _, readout = toy_readout(toy_classifier(spread=4), toy_batch([6, 4]))
    result = measured(readout, restarts=0)
    assert not {
        name for name in result if "found" in name or name in ("reached_share", "feasible_restarts")
    }
    assert_close(result["optimum_jsd"], measured(readout)["optimum_jsd"])


def test_the_optimum_along_epsilon_is_that_of_each_tolerance_by_itself():
    _, readout = toy_readout(toy_classifier(spread=4), toy_batch([6, 4]))
    probe = Adversarial(restarts=0, epsilon=0.05, curve=[0.2, 0.01])
    (curve,) = (
        result
        for result in probe.measure(readout, Draws(0, "x"))
        if result.metric == "optimum_jsd_within"
    )
    assert curve.step.tolist() == [0.01, 0.05, 0.2]
    for place, epsilon in enumerate(curve.step.tolist()):
        optimum = measured(readout, restarts=0, epsilon=epsilon)["optimum_jsd"]
        assert_close(curve.value[:, place], optimum)
    assert (curve.value.diff(dim=-1) >= 0).all()


@pytest.mark.parametrize(("classes", "settings"), [(2, {"curve": []}), (3, {})])
def test_there_is_no_curve_without_tolerances_and_with_more_than_two_classes(classes, settings):
    _, readout = toy_readout(toy_classifier(classes=classes, spread=4), toy_batch([6, 4]))
    assert "optimum_jsd_within" not in measured(readout, restarts=0, **settings)


def along(seeds=1, texts=40):
    """Farthest attentions that grow with ε; a third of the texts is at ln 2 from the start."""
    identity = {
        "experiment": "jain",
        "data": "sst",
        "model": "lstm",
        "split": "test",
        "probe": "adversarial",
        "metric": "optimum_jsd_within",
    }
    rows = []
    for seed, text, epsilon in product(range(seeds), range(texts), (0.01, 0.05, 0.2)):
        jsd = np.log(2)
        if text % 3:
            jsd = min(jsd, 0.1 + epsilon * (text + 1) / 10)
        run = {"run_id": f"r{seed}", "seed": seed, "example_id": text}
        rows.append(identity | run | {"step": epsilon, "value": jsd})
    return pd.DataFrame(rows)


def wilsons_interval(count, n):
    z = 1.959964
    total = n + z**2
    middle = count + z**2 / 2
    variance = count * (n - count) / n + z**2 / 4
    half_width = z * np.sqrt(variance)
    return [(middle - half_width) / total, (middle + half_width) / total]


def test_shares_along_epsilon_are_counted_with_wilsons_interval():
    table = along()
    shares = shares_along(table, 0.4)
    assert shares["epsilon"].tolist() == [0.01, 0.05, 0.2]
    for row in shares.to_dict("records"):
        jsd = table.loc[table["step"] == row["epsilon"], "value"]
        count = int((jsd <= 0.4).sum())
        assert row["share"] == count / 40
        assert [row["low"], row["high"]] == pytest.approx(wilsons_interval(count, 40))


def test_seeds_are_no_further_texts_along_epsilon():
    pd.testing.assert_frame_equal(shares_along(along(seeds=3), 0.4), shares_along(along(), 0.4))
