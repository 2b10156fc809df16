"""The study of the open questions: its grid, its statistics on planted numbers, and a tiny one from
training to the page."""

import itertools

import numpy as np
import pytest
import scipy
from numpy.testing import assert_allclose

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import read_study
from attnprobe.results.files import read_sealed
from attnprobe.runs.studies import carry_out_study
from research.questions import Questions
from research.questions.hypotheses import (
    BOUNDS,
    FAR,
    MARGINS,
    NEVER,
    STATED,
    Contrast,
    contrasts,
    cost_of_distance,
    verdicts,
)
from research.questions.numbers import Adversary, Cell, Grid, over_draws
from research.questions.study import reach
from tests.small_runs import composed

FAMILIES = {"token": ["data=rules"], "order": ["data=rules", "data.source.rule=order_marked"]}
ENCODERS = {
    "average": ["model=average", "model.width={width}"],
    "lstm": ["model=lstm", "model.width={half}"],
}


def study(**changes):
    settings = {
        "families": FAMILIES,
        "encoders": ENCODERS,
        "without_context": ["average"],
        "single": ["token"],
        "blocks": [{"families": ["token", "order"], "encoders": ["average", "lstm"]}],
    }
    return Questions(**settings | changes)


def test_a_grid_is_the_union_of_its_blocks_less_what_an_encoder_cannot_represent():
    fewer_texts = {"families": ["token"], "encoders": ["lstm"], "texts": [1000, 250]}
    union = study(blocks=[*study().blocks, fewer_texts])
    cells = union.cells(union.blocks)
    expected = set()
    for attention in ("learned", "uniform"):
        expected |= {
            (Cell("token", "average", 32, 1000, 1), attention),
            (Cell("token", "lstm", 32, 1000, 1), attention),
            (Cell("token", "lstm", 32, 250, 1), attention),
            (Cell("order", "lstm", 32, 1000, 1), attention),
        }
    assert len(cells) == len(expected)
    assert set(cells) == expected


def test_every_cell_has_a_member_for_each_draw():
    two_draws = study(draws=[3, 4], seeds=[7])
    (stage,) = two_draws.stages(0, "lstm", [])
    assert len(stage) == 12
    assert {member.seed for member in stage} == {7}
    by_role = {member.role: member for member in stage}
    lstm = by_role["order-lstm-32-1000-1-uniform-4"]
    assert "model.width=16" in lstm.overrides
    assert "data.source.seed=4" in lstm.overrides
    assert "model/attention=uniform" in lstm.overrides


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"margins": {"Q1a": 0.05}},
            r"study\.margins: Q1a=0\.05: expected .* at least as strict as 0\.02",
        ),
        (
            {"margins": {"Q2a": 0.05}},
            r"study\.margins: Q2a=0\.05: expected .* at least as strict as 0\.1",
        ),
        (
            {"blocks": [{"families": ["tokens"], "encoders": ["lstm"]}]},
            r"families=\['tokens'\]: expected some of token",
        ),
        ({"seeds": []}, r"study\.draws or study\.seeds is empty"),
    ],
)
def test_margins_are_never_loosened_and_names_are_checked(changes, words):
    assert study(margins={"Q1a": 0.01}).margins["Q1a"] == 0.01
    with pytest.raises(UserError, match=words):
        study(**changes)


CELL = Cell("token", "lstm", 32, 1000, 1)


def test_a_number_is_the_ratio_of_sums_in_each_draw():
    random = np.random.default_rng(0)
    parts = random.random((3, 2, 40, 2))
    grid = Grid({("word", CELL, "learned"): parts})
    number = grid.number("word", CELL)
    numerators, denominators = parts.sum((1, 2)).T
    expected = numerators / denominators
    assert_allclose(number, expected)

    mean = expected.mean()
    standard_error = scipy.stats.sem(expected)
    low, high = scipy.stats.t.interval(0.95, 2, mean, standard_error)
    assert_allclose(over_draws(number), [mean, low, high])


def test_a_draw_without_the_number_does_not_count():
    two_draws = np.array([0.2, 0.4])
    and_an_empty_one = np.array([0.2, np.nan, 0.4])
    assert over_draws(and_an_empty_one) == over_draws(two_draws)
    one_draw = over_draws(np.array([0.2, np.nan]))
    assert np.isnan(one_draw.low)


def test_the_interval_of_a_contrast_ends_where_its_scale_does():
    """Costs that are next to nothing or 1: Student's interval alone goes beyond 1."""
    fall = np.array([0.995, 0.8, 0.0, 0.99, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    assert over_draws(fall).high > 1
    decision = Contrast("width", fall, "above", 0.01).decide()
    assert (decision.verdict, decision.high) == ("holds", 1.0)
    assert decision.low == over_draws(fall).low


def gains(random, draws, seeds, *, log_odds, gain, spread):
    """Learned minus equal weights: accuracy on 200 texts, in each of some draws.

    Args:
        random: generator.
        draws: of the data; how hard they are differs.
        seeds: trainings in each draw, whose luck differs.
        log_odds: of a right answer with learned weights, in the mean.
        gain: how much lower they are with equal weights.
        spread: standard deviation of the log-odds over draws; half of it over seeds.
    """
    draw_effects = random.normal(0, spread, (draws, 1))
    parts = {}
    means = {"learned": log_odds, "uniform": log_odds - gain}
    for attention, mean in means.items():
        luck = random.normal(0, spread / 2, (draws, seeds))
        probability = scipy.special.expit(mean + draw_effects + luck)
        right = random.binomial(200, probability)
        texts = np.full_like(right, 200)
        ratio = np.stack([right, texts], -1).astype(float)
        parts["accuracy", CELL, attention] = ratio[:, :, None]
    grid = Grid(parts)
    return grid.number("accuracy", CELL) - grid.number("accuracy", CELL, "uniform")


@pytest.mark.parametrize(("draws", "seeds"), [(3, 1), (5, 2), (10, 3)])
@pytest.mark.parametrize("log_odds", [0.0, 2.0])
@pytest.mark.parametrize("gain", [0.0, 1.0])
@pytest.mark.parametrize("spread", [pytest.param(0.3, marks=pytest.mark.slow), 0.6])
def test_the_interval_of_a_contrast_holds_the_truth_in_at_least_93_percent(
    draws, seeds, log_odds, gain, spread
):
    """A percentile bootstrap over three draws does in 70 to 75 %."""
    world = {"log_odds": log_odds, "gain": gain, "spread": spread}
    random = np.random.default_rng(0)
    truth = gains(random, 100_000, 5, **world).mean()
    held = 0
    for _ in range(2000):
        number = gains(random, draws, seeds, **world)
        interval = Contrast("", number, "above", 0.0, draws * 200).interval()
        held += interval.low <= truth <= interval.high
    assert held / 2000 >= 0.93


@pytest.mark.parametrize(
    ("jsd", "tvd", "cost"),
    [
        pytest.param([0.2, 0.6], [0.01, 0.03], 0.02, id="half way between the two"),
        pytest.param([0.8], [0.1], 0.05, id="half way from the imitated model itself"),
        # 4/5 of the way to 0.02
        pytest.param([0.5, 0.6], [0.30, 0.02], 0.016, id="the farther one is cheaper"),
        pytest.param([0.1, 0.3], [0.0, 0.0], NEVER, id="never far"),
        pytest.param([0.6, 0.2], [0.03, 0.01], 0.02, id="in any order"),
    ],
)
def test_the_cost_of_a_distance_is_interpolated_and_never_being_far_costs_the_most(jsd, tvd, cost):
    adversaries = {}
    for number, (distance, change) in enumerate(zip(jsd, tvd, strict=True)):
        one_draw = Adversary(np.array([distance]), np.array([change]))
        adversaries[float(number)] = one_draw
    assert FAR == 0.4
    assert cost_of_distance(adversaries) == pytest.approx([cost])


def test_the_reach_of_adversaries_is_counted_by_cell():
    near = Cell("token", "average", 8, 1000, 1)
    far = Cell("token", "average", 128, 1000, 1)
    grid = planted(
        {
            ("accuracy", near, "learned"): 0.99,
            ("far", near, "0.03"): 0.1,
            ("tvd", near, "0.03"): 0.2,
            ("accuracy", far, "learned"): 0.99,
            ("far", far, "0.03"): 0.8,
            ("tvd", far, "0.03"): 0.2,
        }
    )
    table = reach(grid)
    assert table["width"].tolist() == [8, 128]
    assert table["draws"].tolist() == [4, 4]
    assert table["reach it"].tolist() == [0, 4]
    distance_of_near, distance_of_far = table["TVD there"]
    assert np.isnan(distance_of_near)
    assert distance_of_far == pytest.approx(0.1, abs=0.005)


def test_without_adversaries_there_is_no_reach():
    grid = planted({("accuracy", CELL, "learned"): 0.99})
    assert reach(grid).empty


def test_a_width_at_which_adversaries_never_are_far_counts_against_it():
    """Of survivors alone, nothing could be said: no cell has adversaries that are far in both."""
    numbers = {}
    for width, far in ((8, 0.1), (128, 0.6)):
        cell = Cell("token", "average", width, 1000, 1)
        numbers["accuracy", cell, "learned"] = 0.99
        numbers["far", cell, "0.03"] = far
        numbers["tvd", cell, "0.03"] = 0.2
    assert verdicts_on(planted(numbers))["Q4b"] == "holds"


def planted(numbers, shape=(4, 2, 60)):
    """A grid in which (quantity, cell, attention) has these means, with a little noise of texts and
    of draws."""
    random = np.random.default_rng(1)
    parts = {}
    draws, seeds, texts = shape
    solved = {}
    for key, mean in numbers.items():
        noise = random.normal(0, 0.01, shape)
        noise += random.normal(0, 0.001, (draws, 1, 1))
        numerators = mean + noise - noise.mean()
        denominators = np.ones(shape)
        parts[key] = np.stack([numerators, denominators], -1)
        quantity, cell, _ = key
        if quantity == "accuracy":
            solved[cell] = np.ones((draws, seeds), bool)
    return Grid(parts, texts, solved)


def world(gain, off, leak, longer, wider):
    """All numbers that the hypotheses are about, of a world in which these effects are as large as
    said.

    Args:
        gain: in accuracy, of learned over equal weights where texts are few.
        off: how much less weight the word that decides has where states have context.
        leak: in accuracy, of a teacher that leaks.
        longer: in JSD, for each doubling of the length.
        wider: by how much less the widest network differs.
    """
    means = {}
    families = ("token", "twins", "majority5")
    encoders = ("average", "lstm", "transformer2")
    for family, encoder in itertools.product(families, encoders):
        cell = Cell(family, encoder, 32, 1000, 1)
        has_context = encoder != "average"
        means["word", cell, "learned"] = 0.9 - (off if has_context else 0)
        means["state", cell, "learned"] = 0.8
    for texts, length in itertools.product((250, 4000), (1, 4)):
        cell = Cell("token", "average", 32, texts, length)
        advantage = gain if texts == 250 else 0.0
        means["accuracy", cell, "learned"] = 0.99
        means["accuracy", cell, "uniform"] = 0.99 - advantage
    for family, bound in (("recall2", 0.75), ("recall4", 0.604)):
        cell = Cell(family, "lstm", 32, 1000, 1)
        means["accuracy", cell, "learned"] = bound + gain
        means["accuracy", cell, "uniform"] = bound
    order = Cell("order", "lstm", 32, 1000, 1)
    means["gain", order, "right_leak"] = leak
    means["gain", order, "right_none"] = 0.0
    means["gain", order, "wrong_leak"] = leak
    means["gain", order, "wrong_none"] = 0.0
    widths_and_lengths = [(32, 1), (32, 4), (8, 1), (128, 1)]
    for width, length in widths_and_lengths:
        cell = Cell("order", "lstm", width, 1000, length)
        doublings = np.log2(length)
        means["jsd", cell, "learned"] = 0.3 + longer * doublings
        means["accuracy", cell, "learned"] = 0.99
        means["far", cell, "0.005"] = 0.2
        means["far", cell, "0.03"] = 0.5
        distance = 0.1 - (wider if width == 128 else 0)
        means["tvd", cell, "0.005"] = distance
        means["tvd", cell, "0.03"] = distance
    return means


EFFECTS = {
    "gain": 0.25,
    "off": 0.4,
    "leak": 0.3,
    "longer": 0.1,
    "wider": 0.05,
}


def verdicts_on(grid, **settings):
    table = verdicts(contrasts(grid, MARGINS, **settings))
    return table.set_index("")["verdict"].to_dict()


def test_planted_effects_are_found_and_their_absence_refutes():
    grid = planted(world(**EFFECTS))
    assert verdicts_on(grid) == dict.fromkeys(STATED, "holds")
    no_effects = dict.fromkeys(EFFECTS, 0)
    nothing = planted(world(**no_effects))
    expected = dict.fromkeys(STATED, "refuted") | {"Q1a": "holds", "Q2b": "holds"}
    assert verdicts_on(nothing) == expected


def test_without_numbers_no_hypothesis_was_run():
    assert verdicts_on(planted({})) == dict.fromkeys(STATED, "not run")


def test_models_that_did_not_solve_their_task_are_left_out_on_request():
    grid = planted(world(**EFFECTS))
    for solved in grid.solved.values():
        solved[:] = False
    assert verdicts_on(grid, solved_only=True)["Q1a"] == "not run"


def test_where_no_text_differs_the_interval_is_that_of_none_of_so_many():
    """0 of 200: at most 0.0183 by Clopper & Pearson; of equal draws Student has no
    interval."""
    number = np.zeros(3)
    decision = Contrast("equal", number, "within", 0.02, 200).decide()
    none_of_200 = scipy.stats.binomtest(0, 200)
    exact = none_of_200.proportion_ci(0.95, "exact")
    assert (decision.verdict, decision.value) == ("holds", 0)
    assert decision.high == pytest.approx(exact.high)
    assert decision.low == -decision.high

    decision_of_half = Contrast("equal", number, "within", 0.02, 100).decide()
    assert decision_of_half.verdict == "open"


@pytest.mark.parametrize("side", ["above", "within", "below"])
@pytest.mark.parametrize("value", [0.0, 0.3])
def test_one_draw_decides_nothing(side, value):
    number = np.array([value, np.nan])
    decision = Contrast("a pilot", number, side, 0.05, 200).decide()
    assert (decision.verdict, decision.value) == ("open", value)
    assert np.isnan([decision.low, decision.high, decision.p]).all()


def test_p_is_students_over_the_draws():
    number = np.array([0.2, 0.5, 0.3, np.nan])
    contrast = Contrast("some", number, "above", 0.1)
    students_test = scipy.stats.ttest_1samp(number[:3], 0.1)
    decision = contrast.decide()
    assert decision.p == pytest.approx(students_test.pvalue)

    low = contrast.interval().low
    decision_at_low = Contrast("some", number, "above", low).decide()
    assert decision_at_low.p == pytest.approx(0.05)


def test_holm_can_leave_a_hypothesis_open():
    number = np.array([0.015, 0.02, 0.025, 0.03, 0.02])
    weak = Contrast("weak", number, "above", 0.014)
    only_one = verdicts({"Q1c": [weak]})
    all_hypotheses = verdicts({name: [weak] for name in STATED})
    assert only_one["verdict"].tolist() == ["holds"]
    assert set(all_hypotheses["verdict"]) == {"open"}


TINY = (
    "+experiment=questions",
    "study.draws=[100]",
    "study.seeds=[0]",
    "study.adversaries=[]",
    "study.blocks=[{families: [token], encoders: [average], texts: [250]}]",
)


def compose(overrides):
    return composed(*overrides)


def test_a_tiny_study_is_sealed_before_it_begins_and_resumed(tmp_path):
    command = [*TINY, f"output={tmp_path}"]
    plans = []
    directory = carry_out_study(command, compose, on_plan=plans.append)
    plan = plans[0].words
    for name, hypothesis in STATED.items():
        assert f"{name}: {hypothesis.statement}" in plan
    assert "Q2a 0.1" in plan
    sealed = read_sealed(directory / "study.json")
    assert sealed["plan"] == plan
    assert carry_out_study(command, compose) == directory

    verdict, cells = read_study(directory).tables.values()
    # the cells that the hypotheses are about were not run
    assert set(verdict["verdict"]) == {"not run"}
    [cell] = cells.to_dict("records")
    assert cell["family"] == "token"
    assert cell["encoder"] == "average"
    assert cell["models"] == 1
    assert 0.5 < cell["accuracy"] <= 1


def best_accuracy(g):
    """Of equal weights under score = f(text) + g(question), over all texts: keys are answered
    together, for some f, where their own values are a matching of the largest weight."""
    keys = range(len(g))

    def weight(subset, values):
        return sum(g[subset, values])

    def is_matching(subset, text):
        values = [text[key] for key in subset]
        right = weight(subset, values)
        orders = itertools.permutations(values)
        return all(weight(subset, order) <= right + 1e-9 for order in orders)

    def has_matching(text, size):
        subsets = itertools.combinations(keys, size)
        return any(is_matching(subset, text) for subset in subsets)

    answered = []
    for text in itertools.permutations(keys):
        size = len(g)
        while not has_matching(text, size):
            size -= 1
        answered.append(size)
    return np.mean(answered) / len(g)


@pytest.mark.parametrize(("family", "keys"), [("recall2", 2), ("recall4", 4)])
def test_equal_weights_cannot_recall_and_their_loss_is_least_at_chance(family, keys):
    """The bound is reached by g_k(v) = k·v and by no other g that was tried; the cross-entropy,
    convex in f and g, has its least value where all classes are as likely."""
    bound = BOUNDS[family]
    numbers = np.arange(keys)
    product = np.outer(numbers, numbers)
    assert best_accuracy(product) == pytest.approx(bound, abs=5e-4)
    random = np.random.default_rng(0)
    for _ in range(20):
        g = random.normal(size=(keys, keys))
        assert best_accuracy(g) <= bound + 5e-4

    texts = list(itertools.permutations(range(keys)))
    answers = np.eye(keys)[np.array(texts)]  # text, key, class
    assert_allclose(answers.mean(1), 1 / keys)  # what f has to fit, whatever it reads of a text
    assert_allclose(answers.mean(0), 1 / keys)  # what g has to fit
