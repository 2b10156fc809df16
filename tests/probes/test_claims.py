import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.claims import put_to_test
from attnprobe.readings.registry import readings
from tests.probes.tables import NAN, erased, table

COUNT = 40
LENGTH = 20


def needed(more, fewer, **fixed):
    """Orders of an example that can flip: the first needs x more of the items than the second.

    The other orders need the share that is given for them.
    """

    def metrics(x):
        fractions = {more: 0.5 + x / 2, fewer: 0.5 - x / 2}
        fractions |= {name: np.full(COUNT, share) for name, share in fixed.items()}
        columns = {f"removed_fraction_{name}": values for name, values in fractions.items()}
        return columns | {"never_flips": 0 * x}

    return metrics


def counts(first, second):
    """The first order needs fewer items than the second where x > 0.

    In every tenth text it is the other way round.
    """
    sign = np.where(np.arange(COUNT) % 10, 1, -1)
    return lambda x: {
        f"removed_count_{first}": 5 - sign * np.sign(x),
        f"removed_count_{second}": 5 + 0 * x,
    }


def skilled(statistic, x):
    """Half of what there is to be gained at best, less 0.4 of it, and x.

    That is the smallest skill of interest and x.
    """
    return {
        f"{statistic}_own": 0.25 + x,
        f"{statistic}_null": 0.2 + 0 * x,
        f"{statistic}_best": 0.7 + 0 * x,
    }


def on_deciding_words(name, share):
    """So much of the weight beyond chance is on words that move the prediction."""
    even = np.zeros(COUNT)
    return {
        f"{name}_excess": 0.9 * share + even,
        f"{name}_room": 0.9 + even,
        f"{name}_strength": 0.2 + even,
    }


def beside_another_class(metrics, others):
    """The texts of class 1, and as many of class 0."""
    columns = {"predicted_class": np.repeat([1.0, 0.0], COUNT)}
    for name, values in metrics.items():
        columns[name] = np.concatenate([values, others[name]])
    return columns


def beyond_chance(metric):
    """Chance is 0.2: a tenth of what is beyond it, and x."""
    return lambda x: {metric: 0.28 + x, "rationale_share": 0.2 + 0 * x}


def read_out(kind):
    """What is read by attention's weights tells 0.01 and x more than by equal ones."""
    return lambda x: {
        f"readout_{kind}_attention": 0.51 + x,
        f"readout_{kind}_equal": 0.5 + 0 * x,
        "readout_weight": 1 + 0 * x,
    }


def for_classes(metrics, least=()):
    """The same numbers of two classes, of which one has more room where `least` says so."""
    columns = {}
    for number in range(2):
        for kind, values in metrics.items():
            more = least if number else {}
            columns[f"{kind}_class_{number}"] = values + dict(more).get(kind, 0)
    return columns


def of_orders(more, fewer, least=(), **fixed):
    """As `needed`, by the names of the orders of every class."""

    def metrics(x):
        columns = {
            f"turn_share_{name.removeprefix('removed_fraction_')}": values
            for name, values in needed(more, fewer, **fixed)(x).items()
            if name.startswith("removed")
        }
        columns.pop("turn_share_ignored", None)
        return for_classes(columns | {"never_turns": 0 * x}, least)

    return metrics


def of_outputs(*shares):
    """Classes whose own words have so much of the weight beyond chance."""
    columns = {}
    for number, share in enumerate(shares):
        for name, values in on_deciding_words("output", share).items():
            columns[f"{name}_class_{number}"] = values
    return columns


# claim → the metrics of examples in which the claim's number is above its threshold as far as x is
# above 0
CASES = {
    ("permutation", "permuting_moves_the_prediction"): lambda x: {"median_tvd": 0.05 + x / 10},
    ("adversarial", "no_other_attention_exists"): lambda x: {
        "optimum_jsd": 0.4 - x,
        "upper_bound": 0.4 - x,
    },
    ("adversarial", "the_search_falls_short"): lambda x: {
        "optimum_jsd": 0.5 + 0 * x,
        "found_jsd": 0.49 - x,
        "reached_share": 0.98 - 2 * x,
    },
    ("correlation", "attention_agrees_as_the_gradient_does"): lambda x: {
        "tau_attention_leave_one_out": 0.45 + x,
        "tau_gradient_leave_one_out": 0.4 + 0 * x,
    },
    ("sanity", "attention_depends_on_the_model"): lambda x: {
        "ceiling_similarity_attention": 1 + 0 * x,
        "random_weights_similarity_attention": 0.5 - x,
    },
    ("agreement", "agrees_with_gradient"): lambda x: (
        skilled("tau_gradient", x) | {"tau_ceiling": 0.5 + 0 * x}
    ),
    ("agreement", "agrees_with_leave_one_out"): lambda x: (
        skilled("tau_leave_one_out", x) | {"tau_ceiling": 0.5 + 0 * x}
    ),
    ("skill", "top_state_decides"): lambda x: skilled("state_drop", x),
    ("skill", "top_word_decides"): lambda x: skilled("word_distance", x),
    ("skill", "top_state_flips"): lambda x: skilled("state_flip", x),
    ("skill", "top_word_flips"): lambda x: skilled("word_flip", x),
    ("skill", "weights_follow_words"): lambda x: skilled("word_mass", x + 0.05),
    ("swaps", "weight_is_on_deciding_words"): lambda x: on_deciding_words("swap", 0.4 + x),
    ("swaps", "weight_is_on_deciding_words_in_every_class"): lambda x: beside_another_class(
        on_deciding_words("swap", 0.4 + x), on_deciding_words("swap", 0.9)
    ),
    ("swaps", "weight_is_on_deciding_words_in_own_context"): lambda x: on_deciding_words(
        "own", 0.4 + x
    ),
    ("swaps", "every_class_has_such_words"): lambda x: beside_another_class(
        on_deciding_words("swap", 0.5) | {"swap_strength": 0.2 * (0.25 + x)},
        on_deciding_words("swap", 0.5),
    ),
    ("swaps", "weights_move_the_prediction"): lambda x: {"equal_weights_distance": 0.01 + x},
    ("swaps", "top_word_is_strongest"): lambda x: {"top_word_effect": 0.5 + x},
    ("swaps", "weight_is_on_deciding_words_of_all_classes"): lambda x: of_outputs(0.4 + x, 0.4 + x),
    ("swaps", "weight_is_on_deciding_words_of_each_class"): lambda x: of_outputs(0.4 + x, 0.9),
    ("classes", "attention_beats_random_over_classes"): lambda x: of_orders("random", "attention")(
        x + 0.02
    ),
    ("classes", "attention_beats_random_in_every_class"): lambda x: of_orders(
        "random", "attention", {"turn_share_random": 0.3}
    )(x + 0.02),
    ("classes", "attention_closer_to_optimal_than_to_random_over_classes"): lambda x: of_orders(
        "ignored", "attention", random=0.8, optimal=0.2
    )(2 * x + 0.04),
    ("classes", "attention_closer_to_optimal_than_to_random_in_every_class"): lambda x: of_orders(
        "ignored", "attention", {"turn_share_random": 0.6}, random=0.8, optimal=0.2
    )(2 * x + 0.04),
    ("classes", "top_does_more_over_classes"): lambda x: for_classes(
        {"top_effect": 0.301 + x, "other_effect": 0.3 + 0 * x}
    ),
    ("classes", "top_does_more_in_every_class"): lambda x: for_classes(
        {"top_effect": 0.301 + x, "other_effect": 0.3 + 0 * x}, {"top_effect": 0.3}
    ),
    ("classes", "top_turns_more_over_classes"): lambda x: for_classes(
        {"top_turns": 0.42 + x, "other_turns": 0.4 + 0 * x}
    ),
    ("classes", "top_turns_more_in_every_class"): lambda x: for_classes(
        {"top_turns": 0.42 + x, "other_turns": 0.4 + 0 * x}, {"top_turns": 0.3}
    ),
    ("labels", "labels_need_their_own_attention"): lambda x: {"other_label_tvd": 0.01 + x},
    ("readouts", "states_by_weight_tell_more"): read_out("states"),
    ("readouts", "words_by_weight_tell_more"): read_out("words"),
    ("plausibility", "top_token_in_rationale"): beyond_chance("top_in_rationale_attention"),
    ("plausibility", "mass_on_rationale"): beyond_chance("mass_in_rationale_attention"),
    ("plausibility", "gradient_is_more_plausible"): lambda x: {
        "top_in_rationale_gradient": 0.4 + x / 2,
        "top_in_rationale_attention": 0.4 - x / 2,
    },
    ("single_weight", "top_flips_more_than_random"): lambda x: {
        "flip_top_attention": 0.42 + x,
        "flip_random_attention": 0.4 + 0 * x,
    },
    ("single_weight", "delta_js_is_positive"): lambda x: {"delta_js_attention": 0.001 + x},
    ("single_weight", "effects_follow_attention"): lambda x: {"tau_attention_effect": 0.5 + x},
    ("single_weight", "one_weight_rarely_decides"): lambda x: {
        "flip_top_attention": (x <= 0).astype(float)
    },
    ("single_weight", "small_differences_do_little"): lambda x: {
        "drawn_delta_js_attention": np.where(x > 0, -0.005, 0.02),
        "drawn_delta_attention_attention": 0.39 + 0 * x,
    },
    ("erasure", "attention_beats_random"): lambda x: needed("random", "attention")(x + 0.02),
    ("erasure", "attention_closer_to_optimal_than_to_random"): lambda x: needed(
        "ignored", "attention", random=0.8, optimal=0.2
    )(2 * x + 0.04),
    ("erasure", "attention_needs_no_more_than_the_optimum"): lambda x: {
        "regret_attention": np.where(x > 0, 0.0, 1.0),
        "never_flips": 0 * x,
    },
    ("erasure", "attention_beats_gradient"): counts("attention", "gradient"),
    ("erasure", "random_is_worst"): needed(
        "random", "gradient", attention=0.1, gradient_attention=0.1
    ),
    ("erasure", "gradient_attention_is_best"): needed(
        "gradient", "gradient_attention", attention=0.9, random=0.9
    ),
}


OF_LABELS = {("swaps", "weight_is_on_deciding_words_of_every_label")}
"""Only of rows that ask for labels: tested in tests/evidence/test_deciding_words.py."""


def finding_of(probe, metrics, name):
    """What becomes of one claim."""
    claims = tuple(claim for claim in readings()[probe].claims if claim.name == name)
    findings = put_to_test(claims, table(probe, metrics))
    return findings[0] if findings else None


@pytest.mark.parametrize(("probe", "name"), CASES, ids=lambda word: word)
@pytest.mark.parametrize(
    ("centre", "verdict"),
    [
        (0.15, "meets"),
        (-0.15, "fails"),
        (0.0, "cannot decide"),
    ],
)
def test_a_claim_holds_fails_or_stays_undecided(probe, name, centre, verdict):
    half = np.linspace(0.01, 0.14, COUNT // 2)
    x = np.concatenate([half, -half]) + centre
    finding = finding_of(probe, CASES[probe, name](x), name)
    within = finding.claim.smallest >= 0.15 or (probe, name) == (
        "permutation",
        "permuting_moves_the_prediction",
    )
    assert finding.verdict == (
        "no relevant difference" if within and verdict == "fails" else verdict
    )
    assert finding.evidence.n == COUNT


@pytest.mark.parametrize(("strength", "value"), [(0.0, 0.0), (0.2, 1.0)])
def test_the_class_in_which_words_decide_least_counts(strength, value):
    decided = np.arange(COUNT) % 4 == 1
    metrics = on_deciding_words("swap", 0.5) | {
        "swap_strength": np.where(decided, strength, 0.2),
        "predicted_class": 1.0 * decided,
    }
    evidence = finding_of("swaps", metrics, "every_class_has_such_words").evidence
    assert evidence.value == pytest.approx(value)
    assert strength or evidence.part == "class_1"


def metrics_of(probe, name):
    """The metrics of a claim's case, about as often above its threshold as below."""
    metrics = CASES[probe, name](np.linspace(-0.1, 0.1, COUNT))
    texts = len(next(iter(metrics.values())))
    return metrics | {"content_length": np.full(texts, LENGTH)}


NOT_NEEDED = ("content_length", "removed_fraction_ignored", "tau_ceiling")
NEEDED = [
    (probe, name, metric)
    for probe, name in CASES
    for metric in metrics_of(probe, name)
    if metric not in NOT_NEEDED
]


@pytest.mark.parametrize(("probe", "name", "metric"), NEEDED, ids=lambda word: word)
def test_a_claim_without_one_of_its_metrics_is_not_made(probe, name, metric):
    metrics = metrics_of(probe, name)
    del metrics[metric]
    assert finding_of(probe, metrics, name) is None


@pytest.mark.parametrize(("probe", "name"), CASES, ids=lambda word: word)
def test_a_claim_without_a_number_is_not_made(probe, name):
    metrics = {metric: np.full(COUNT, NAN) for metric in metrics_of(probe, name)}
    assert finding_of(probe, metrics, name) is None


WITHOUT_CLAIMS = {"performance", "gradient", "leave_one_out"}
PROBES = sorted({probe for probe, _ in CASES} | WITHOUT_CLAIMS)


@pytest.mark.parametrize("probe", PROBES)
def test_the_claims_of_a_reading_are_tested(probe):
    tested = {name for owner, name in {*CASES, *OF_LABELS} if owner == probe}
    names = [claim.name for claim in readings()[probe].claims]
    assert set(names) == tested
    assert len(names) == len(tested)


@pytest.mark.parametrize("probe", PROBES)
def test_readings_say_what_they_measure(probe):
    reading = readings()[probe]
    ends = reading.about.count(". ") + reading.about.count("? ")
    assert reading.title
    assert 2 <= 1 + ends <= 10
    assert reading.about.endswith(".")


@pytest.fixture(scope="module")
def flipped():
    """30 texts of 16 items: in a third of them no ranking flips, in another one not every does."""
    texts = erased(
        np.full(3, 16),
        attention=[4, 4, NAN],
        random=[8, NAN, NAN],
        optimal=[2, 2, NAN],
    )
    return {name: np.tile(values, 10) for name, values in texts.items()}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("attention_beats_random", ((8 - 4) / 16 + (16 - 4) / 16) / 2),
        # (8/16 + 2/16)/2 − 4/16 and (16/16 + 2/16)/2 − 4/16
        ("attention_closer_to_optimal_than_to_random", (1 / 16 + 5 / 16) / 2),
        ("attention_needs_no_more_than_the_optimum", 0),
    ],
)
def test_orders_are_compared_on_what_can_flip_and_an_order_that_does_not_flip_it_needs_everything(
    flipped, name, value
):
    evidence = finding_of("erasure", flipped, name).evidence
    assert evidence.n == 20
    assert evidence.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("probe", "name", "metrics", "value", "n"),
    [
        # an order that does not flip what can be flipped has regret
        (
            "erasure",
            "attention_needs_no_more_than_the_optimum",
            {"regret_attention": [0.0, NAN, NAN] * 10, "never_flips": [0, 0, 1] * 10},
            0.5,
            20,
        ),
        # one sooner, one later, one tie; two orders meet where one of them flips
        (
            "erasure",
            "attention_beats_gradient",
            {
                "removed_count_gradient": [1, NAN, 3, NAN] * 10,
                "removed_count_attention": [2, 2, 3, NAN] * 10,
            },
            0,
            30,
        ),
        # where nothing but the search is known it falls short of nothing
        (
            "adversarial",
            "the_search_falls_short",
            {
                "optimum_jsd": [0.5] * COUNT,
                "found_jsd": [0.4] * 20 + [0.2] * 20,
                "reached_share": [NAN] * 20 + [0.4] * 20,
            },
            0.3,
            20,
        ),
        # large differences of weights are left out
        (
            "single_weight",
            "small_differences_do_little",
            {
                "drawn_delta_js_attention": [0.005] * 20 + [0.3] * 20,
                "drawn_delta_attention_attention": [0.1] * 20 + [0.4] * 20,
            },
            1,
            20,
        ),
    ],
)
def test_numbers_of_claims_by_hand(probe, name, metrics, value, n):
    evidence = finding_of(probe, metrics, name).evidence
    assert (evidence.value, evidence.n) == (pytest.approx(value), n)


@pytest.mark.parametrize(
    ("optimum", "bound", "verdict"),
    [
        (0.3, 0.3, "meets"),
        (0.3, 0.6, "cannot decide"),
        (0.6, 0.6, "fails"),
    ],
    ids=["proved", "bracketed", "refuted"],
)
def test_that_no_other_attention_was_found_is_no_pass(optimum, bound, verdict):
    metrics = {"optimum_jsd": np.full(COUNT, optimum), "upper_bound": np.full(COUNT, bound)}
    assert finding_of("adversarial", metrics, "no_other_attention_exists").verdict == verdict


def test_an_optimum_that_is_only_bracketed_counts_at_its_best():
    metrics = {"optimum_jsd": np.full(COUNT, 0.3), "upper_bound": np.full(COUNT, 0.6)}
    assert finding_of("adversarial", metrics, "no_other_attention_exists").evidence.value == 1


def test_where_nothing_moves_the_prediction_no_pointing_is_asked_for():
    flat = np.full(COUNT, 0.003) + np.linspace(0, 1e-3, COUNT)
    metrics = {
        "word_distance_own": flat,
        "word_distance_null": flat,
        "word_distance_best": np.full(COUNT, 0.01),
    }
    finding = finding_of("skill", metrics, "top_word_decides")
    assert finding.verdict == "not informative"
    assert finding.evidence.unasked == "nothing it could point at moves the prediction by 0.02"


@pytest.mark.parametrize(("ceiling", "verdict"), [(0.1, "not informative"), (0.5, "meets")])
def test_no_agreement_is_asked_of_measures_that_do_not_agree_with_each_other(ceiling, verdict):
    x = np.linspace(0.1, 0.3, COUNT)
    metrics = skilled("tau_gradient", x) | {"tau_ceiling": ceiling + 0.1 * x}
    assert finding_of("agreement", metrics, "agrees_with_gradient").verdict == verdict


def test_seeds_are_no_further_examples():
    first = table("permutation", {"median_tvd": np.full(COUNT, 0.1)})
    second = table("permutation", {"median_tvd": np.full(COUNT, 0.3)})
    second = second.assign(seed=1, run_id="another")
    claims = readings()["permutation"].claims
    (finding,) = put_to_test(claims, pd.concat([first, second]))
    assert finding.evidence.value == pytest.approx(0.2)
    assert finding.evidence.n == COUNT
