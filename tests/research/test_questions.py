"""The study of the open questions: its grid, its statistics on planted numbers, and a tiny one from
training to the page."""

import itertools

import numpy as np
import pytest
import scipy

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import read_study
from attnprobe.results.files import read_sealed
from attnprobe.runs.studies import carry_out_study
from research.questions import Questions
from research.questions.hypotheses import (
    BOUNDS,
    MARGINS,
    STATED,
    Contrast,
    contrasts,
    verdicts,
)
from research.questions.numbers import Cell, Grid, resampling
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
    union = study(
        blocks=[
            *study().blocks,
            {"families": ["token"], "encoders": ["lstm"], "texts": [1000, 250]},
        ]
    )
    cells = union.cells(union.blocks)
    expected = {
        (family, encoder, 32, texts, 1, attention)
        for family, encoder, texts, attention in itertools.product(
            FAMILIES, ENCODERS, (1000, 250), ("learned", "uniform")
        )
        if (encoder, family) != ("average", "order")
        and (texts == 1000 or (family, encoder) == ("token", "lstm"))
    }
    assert len(cells) == len(expected)
    assert {(*cell, attention) for cell, attention in cells} == expected
    (stage,) = study(draws=[3, 4], seeds=[7]).stages(0, "lstm", [])
    assert len(stage) == 12
    assert {member.seed for member in stage} == {7}
    (lstm,) = [member for member in stage if member.role == "order-lstm-32-1000-1-uniform-4"]
    assert {"model.width=16", "data.source.seed=4", "model/attention=uniform"} <= set(
        lstm.overrides
    )


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


def resampled(values):
    cell = Cell("token", "lstm", 32, 1000, 1)
    parts = np.stack([values, np.ones_like(values)], -1)
    grid = Grid({("accuracy", cell, "learned"): parts}, resampling(*values.shape))
    return grid.number("accuracy", cell)


def test_draws_seeds_and_texts_are_resampled_each_within_the_other():
    """The spread of each level alone is what theory says of a bootstrap of so many; nothing varies,
    nothing spreads."""
    random = np.random.default_rng(0)
    shape = (5, 4, 50)
    draws = random.normal(size=(5, 1, 1))
    seeds = random.normal(size=(5, 4, 1))
    texts = random.normal(size=(5, 1, 50))
    seeds -= seeds.mean(1, keepdims=True)
    texts -= texts.mean(2, keepdims=True)
    for values, variance in (
        (draws, draws.var() / 5),
        (seeds, seeds.var(1).mean() / 4 / 5),
        (texts, texts.var(2).mean() / 50 / 5),
    ):
        number = resampled(np.broadcast_to(values, shape).copy())
        assert number[0] == pytest.approx(values.mean())
        assert number[1:].var() == pytest.approx(variance, rel=0.25)
    assert np.ptp(resampled(np.full(shape, 0.5))) < 1e-6


def planted(numbers, shape=(4, 2, 60)):
    """A grid in which (quantity, cell, attention) has these means, with a little noise."""
    random = np.random.default_rng(1)
    parts = {}
    for key, mean in numbers.items():
        noise = random.normal(0, 0.01, shape)
        parts[key] = np.stack([mean + noise - noise.mean(), np.ones(shape)], -1)
    solved = {
        cell: np.ones(shape[:2], bool) for quantity, cell, _ in numbers if quantity == "accuracy"
    }
    return Grid(parts, resampling(*shape), solved)


def world(gain, off, leak, longer, wider):
    """All numbers that the hypotheses are about, of a world in which these effects are as large as
    said."""
    means = {}
    for family, encoder in itertools.product(
        ("token", "twins", "majority5"), ("average", "lstm", "transformer2")
    ):
        cell = Cell(family, encoder, 32, 1000, 1)
        means["word", cell, "learned"] = 0.9 - (0 if encoder == "average" else off)
        means["state", cell, "learned"] = 0.8
    for texts, advantage in ((250, gain), (4000, 0.0)):
        for length in (1, 4):
            cell = Cell("token", "average", 32, texts, length)
            means["accuracy", cell, "learned"] = 0.99
            means["accuracy", cell, "uniform"] = 0.99 - advantage
    for family, bound in (("recall2", 0.75), ("recall4", 0.604)):
        cell = Cell(family, "lstm", 32, 1000, 1)
        means["accuracy", cell, "learned"] = bound + gain
        means["accuracy", cell, "uniform"] = bound
    for kind in ("right_leak", "right_none", "wrong_leak", "wrong_none"):
        means["gain", Cell("order", "lstm", 32, 1000, 1), kind] = (
            leak if kind.endswith("leak") else 0.0
        )
    for width, length in ((32, 1), (32, 4), (8, 1), (128, 1)):
        cell = Cell("order", "lstm", width, 1000, length)
        means["jsd", cell, "learned"] = 0.3 + longer * np.log2(length)
        means["accuracy", cell, "learned"] = 0.99
        for weight, far in (("0.005", 0.2), ("0.03", 0.5)):
            means["far", cell, weight] = far
            means["tvd", cell, weight] = 0.1 - (wider if width == 128 else 0)
    return means


EFFECTS = {"gain": 0.25, "off": 0.4, "leak": 0.3, "longer": 0.1, "wider": 0.05}


def verdicts_on(grid, **settings):
    table = verdicts(contrasts(grid, MARGINS, **settings))
    return table.set_index("")["verdict"].to_dict()


def test_planted_effects_are_found_and_their_absence_refutes():
    grid = planted(world(**EFFECTS))
    assert verdicts_on(grid) == dict.fromkeys(STATED, "holds")
    nothing = planted(world(**dict.fromkeys(EFFECTS, 0)))
    expected = dict.fromkeys(STATED, "refuted") | {"Q1a": "holds", "Q2b": "holds"}
    assert verdicts_on(nothing) == expected


def test_without_numbers_no_hypothesis_was_run():
    assert verdicts_on(planted({})) == dict.fromkeys(STATED, "not run")


def test_models_that_did_not_solve_their_task_are_left_out_on_request():
    grid = planted(world(**EFFECTS))
    grid.solved = {cell: np.zeros_like(solved) for cell, solved in grid.solved.items()}
    assert verdicts_on(grid, solved_only=True)["Q1a"] == "not run"


def test_where_no_text_differs_the_interval_is_that_of_none_of_so_many():
    """0 of 200: at most 0.0183 by Clopper & Pearson; of a bootstrap of equal numbers nothing would
    be left."""
    number = np.zeros(2001)
    decision = Contrast("equal", number, "within", 0.02, 200).decide()
    assert (decision.verdict, decision.value) == ("holds", 0)
    exact = scipy.stats.binomtest(0, 200).proportion_ci(0.95, "exact")
    assert decision.high == -decision.low == pytest.approx(exact.high)
    assert Contrast("equal", number, "within", 0.02, 100).decide().verdict == "open"


def test_holm_can_leave_a_hypothesis_open():
    noise = np.r_[0, np.random.default_rng(2).normal(0, 0.010, 2000)]
    weak = Contrast("weak", 0.022 + noise, "above", 0.0)
    assert verdicts({"Q1c": [weak]})["verdict"].tolist() == ["holds"]
    assert set(verdicts({name: [weak] for name in STATED})["verdict"]) == {"open"}


TINY = (
    "+experiment=questions",
    "study.draws=[100]",
    "study.seeds=[0]",
    "study.adversaries=[]",
    "study.blocks=[{families: [token], encoders: [average], texts: [250]}]",
)


def test_a_tiny_study_is_sealed_before_it_begins_and_resumed(tmp_path):
    command = [*TINY, f"output={tmp_path}"]
    plans = []
    directory = carry_out_study(
        command, lambda overrides: composed(*overrides), on_plan=plans.append
    )
    for name, hypothesis in STATED.items():
        assert f"{name}: {hypothesis.statement}" in plans[0].words
    assert "Q2a 0.1" in plans[0].words
    assert read_sealed(directory / "study.json")["plan"] == plans[0].words
    assert carry_out_study(command, lambda overrides: composed(*overrides)) == directory
    verdict, cells = read_study(directory).tables.values()
    assert set(verdict["verdict"]) == {
        "not run"
    }  # the cells that the hypotheses are about were not
    assert cells[["family", "encoder", "models"]].to_numpy().tolist() == [["token", "average", 1]]
    assert 0.5 < cells["accuracy"].item() <= 1


def best_accuracy(g):
    """Of equal weights under score = f(text) + g(question), over all texts: keys are answered
    together, for some f, where their own values are a matching of the largest weight."""
    keys = range(len(g))
    subsets = [
        subset for size in range(len(g), 0, -1) for subset in itertools.combinations(keys, size)
    ]

    def weight(subset, values):
        return sum(g[key, value] for key, value in zip(subset, values, strict=True))

    def is_matching(subset, text):
        values = [text[key] for key in subset]
        right = weight(subset, values)
        orders = itertools.permutations(values)
        return all(weight(subset, order) <= right + 1e-9 for order in orders)

    texts = itertools.permutations(keys)
    answered = [
        next(len(subset) for subset in subsets if is_matching(subset, text)) for text in texts
    ]
    return np.mean(answered) / len(g)


@pytest.mark.parametrize(("family", "keys"), [("recall2", 2), ("recall4", 4)])
def test_equal_weights_cannot_recall_and_their_loss_is_least_at_chance(family, keys):
    """The bound is reached by g_k(v) = k·v and by no other g that was tried; the cross-entropy,
    convex in f and g, has its least value where all classes are as likely."""
    assert best_accuracy(np.outer(np.arange(keys), np.arange(keys))) == pytest.approx(
        BOUNDS[family], abs=5e-4
    )
    random = np.random.default_rng(0)
    assert all(
        best_accuracy(random.normal(size=(keys, keys))) <= BOUNDS[family] + 5e-4 for _ in range(20)
    )
    texts = list(itertools.permutations(range(keys)))
    answers = np.eye(keys)[np.array(texts)]  # text, key, class
    np.testing.assert_allclose(
        answers.mean(1), 1 / keys
    )  # what f has to fit, whatever it reads of a text
    np.testing.assert_allclose(answers.mean(0), 1 / keys)  # what g has to fit
