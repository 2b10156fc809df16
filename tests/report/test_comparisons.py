import numpy as np
import pandas as pd
import pytest

from attnprobe.findings.table import compare_models
from tests.probes.tables import NAN, table

COUNT = 40
NOISE = np.linspace(-0.05, 0.05, COUNT)
ONES = np.ones(COUNT)


def models(probe, first, second, *, names=("flanrnn", "flannoenc")):
    """Both models' tables of one probe."""
    return pd.concat(
        [table(probe, metrics, model=model) for metrics, model in zip((first, second), names, strict=True)]
    )


def by_attention(fraction, optimal=0.1, never=0.0):
    return {
        "removed_fraction_attention": fraction, "removed_fraction_optimal": optimal * ONES, "never_flips": never * ONES,
    }  # fmt: skip


def verdicts(results):
    return {finding.claim.name: finding.verdict for finding in compare_models(results)}


def agreement(at, names):
    low, high = ({f"tau_attention_{of}": one for of in ("gradient", "leave_one_out")} for one in (at, 0.3 * ONES))
    return models("correlation", low, high, names=names)


@pytest.mark.parametrize(("lead", "verdict"), [(0.2, "meets"), (-0.2, "fails"), (0.0, "cannot decide")])
def test_known_leads_of_one_model_over_the_other(lead, verdict):
    more, half = by_attention(0.5 + lead + NOISE), by_attention(0.5 * ONES)
    less = {"tau_attention_effect": 0.3 - lead + NOISE}
    agreeing = agreement(0.3 - lead + NOISE, ("lstm_dot", "average_dot"))
    followed = models("single_weight", less, {"tau_attention_effect": 0.3 * ONES})
    for results, expected in (
        (models("erasure", more, half), ["order_worse_flanrnn_flannoenc"]),
        (models("erasure", more, half, names=("hanconv", "hanrnn")), ["needs_more_hanconv_hanrnn"]),
        (followed, ["effects_follow_less_flanrnn_flannoenc"]),
        (agreeing, [f"{of}_agrees_less_lstm_dot_average_dot" for of in ("gradient", "leave_one_out")]),
    ):
        assert verdicts(results) == dict.fromkeys(expected, verdict)
    (finding,) = compare_models(models("erasure", more, half))
    assert (finding.data, finding.model, finding.evidence.n) == ("yelp", "flanrnn, flannoenc", COUNT)
    assert finding.evidence.value == pytest.approx(lead)
    assert finding.claim.speaks == "neither"


def test_models_are_compared_within_the_examples_that_both_have_and_can_flip():
    first, second = by_attention(np.array([0.5, 0.7] * 20)), by_attention(np.array([0.4, NAN] * 20))
    second["never_flips"] = np.array([0.0, 1.0] * 20)
    (finding,) = compare_models(models("erasure", first, second))
    assert (finding.evidence.value, finding.evidence.n) == (pytest.approx(0.1), 20)
    second["never_flips"] = 0 * ONES  # now attention's order alone does not flip every other one: all items
    (finding,) = compare_models(models("erasure", first, second))
    assert (finding.evidence.value, finding.evidence.n) == (pytest.approx((0.1 - 0.3) / 2), COUNT)
    shifted = models("erasure", first, second)
    shifted.loc[shifted["model"] == "flannoenc", "example_id"] += 2
    assert compare_models(shifted)[0].evidence.n == COUNT - 2


def test_seeds_are_averaged_first():
    one, other = by_attention(0.5 * ONES), by_attention(0.9 * ONES)
    seeds = pd.concat(
        [table("erasure", one, model="flanrnn"), table("erasure", other, model="flanrnn").assign(seed=1, run_id="s1")]
    )
    (finding,) = compare_models(pd.concat([seeds, table("erasure", one, model="flannoenc")]))
    assert (finding.evidence.value, finding.evidence.n) == (pytest.approx(0.2), COUNT)


def test_what_is_missing_is_not_compared():
    alone = table("erasure", by_attention(0.5 * ONES), model="flanrnn")
    assert compare_models(alone) == []
    elsewhere = table("erasure", by_attention(0.5 * ONES), model="flannoenc", data="imdb")
    assert compare_models(pd.concat([alone, elsewhere])) == []
    assert compare_models(models("erasure", by_attention(0.5 * ONES), {"content_length": ONES})) == []
    assert compare_models(models("erasure", by_attention(0.5 * ONES), by_attention(NAN * ONES, never=1.0))) == []
    few = {metric: values[:5] for metric, values in by_attention(0.5 + NOISE).items()}
    assert verdicts(models("erasure", few, few)) == {"order_worse_flanrnn_flannoenc": "too rare to say"}
