import numpy as np
import pandas as pd
import pytest

from attnprobe.findings.bench.judging import (
    as_columns,
    auroc,
    judged,
    over_rules,
    rates_by_kind,
    weights_of,
)
from attnprobe.findings.bench.scores import KNOWN
from tests.toy_bench import ABSENCE, write_bench


def by_chance(model, texts):
    """Scores that know nothing."""
    draw = np.random.default_rng(len(model.name))
    return [draw.random(len(text.words)) for text in texts]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    bench = write_bench(tmp_path_factory.mktemp("bench"), absence=True)
    scores = {**KNOWN, "chance": by_chance}
    return pd.DataFrame(judged(bench, bench.models(), scores))


@pytest.fixture(scope="module")
def rates(rows):
    table = as_columns(rates_by_kind(rows))
    return table[table["kind"] == "all"].set_index("scores")


def test_the_truth_is_perfect(rates):
    truth = rates.loc["truth"]
    assert truth["auroc"] == 1
    assert truth["average_precision"] == 1
    assert truth["truth"] == 1
    assert truth["share"] == pytest.approx(1, abs=0.05)
    assert truth["yes"] == 1


def test_the_truth_is_first_and_its_reverse_last(rates):
    assert rates.index[0] == "truth"
    assert rates.index[-1] == "reverse"


def test_the_reverse_is_the_worst_there_is(rates):
    reverse = rates.loc["reverse"]
    assert reverse["auroc"] == 0
    assert reverse["truth"] == pytest.approx(-1 / 5)  # 0 for 1 / 6 by chance, of 5 / 6
    assert reverse["share"] == pytest.approx(-1 / 5, abs=0.05)
    assert reverse["yes"] == 0


def test_chance_is_chance(rates):
    chance = rates.loc["chance"]
    assert chance["auroc"] == pytest.approx(0.5, abs=0.06)
    assert chance["truth"] == pytest.approx(0, abs=0.06)
    assert chance["share"] == pytest.approx(0, abs=0.06)
    assert chance["yes"] == 0


def test_equal_scores_are_chance_exactly(rates):
    attention = rates.loc["attention"]
    assert attention["auroc"] == 0.5
    assert attention["truth"] == pytest.approx(0, abs=1e-9)
    assert attention["share"] == pytest.approx(0, abs=1e-6)
    assert attention["yes"] == 0


def test_models_that_no_word_moves_are_not_asked(rows, rates):
    absent = rows[rows["rule"] == ABSENCE]
    assert set(absent["answer"]) == {"not asked"}
    assert absent[["auroc", "truth"]].isna().all(axis=None)
    assert (rates["models"] == 4).all()
    assert (rates["asked"] == 3).all()
    assert (rates["rules"] == 3).all()


def test_a_kind_has_its_own_rates(rows):
    of_truth = rows[rows["scores"] == "truth"]
    table = as_columns(rates_by_kind(of_truth)).set_index("kind")
    token = table.loc["token"]
    assert token["models"] == 2
    assert token["rules"] == 1
    assert token["yes"] == 1
    assert np.isnan(table.loc[ABSENCE, "yes"])


def test_auroc_is_the_share_of_pairs_in_the_right_order():
    draw = np.random.default_rng(0)
    for _ in range(50):
        scores = draw.integers(0, 4, 9).astype(float)
        deciding = draw.random(9) < 0.4
        if deciding.any() and not deciding.all():
            deciding_scores = scores[deciding]
            other_scores = scores[~deciding]
            lead = np.subtract.outer(deciding_scores, other_scores)
            is_ordered = np.where(lead == 0, 0.5, lead > 0)
            assert auroc(scores, deciding) == pytest.approx(is_ordered.mean())


def test_scores_count_by_their_sizes():
    weights = weights_of(np.array([-3.0, 1.0, 0.0]))
    assert weights.tolist() == [0.75, 0.25, 0]


def test_scores_that_are_undefined_count_the_same():
    weights = weights_of(np.full(4, np.nan))
    assert weights.tolist() == [0.25, 0.25, 0.25, 0.25]


def test_rules_are_the_units():
    rows = pd.DataFrame(
        {
            "rule": [*"aaaaaaaaab"],
            "auroc": [1.0] * 9 + [0.5],
        }
    )
    mean, low, high = over_rules(rows, "auroc")
    assert mean == 0.75
    assert (low, high) == (0, 1)  # two rules say little, and the interval ends where AUROC does


def by_definition(text, scores):
    """Strength, excess and room of one text."""
    effects = text.sets.effects()
    first = effects.first.numpy()
    second = effects.second.numpy()
    squared = (first * second).sum(-1) / 2
    size = (first**2 + second**2).sum(-1)
    strongest = size.argmax()
    strength = squared[strongest]
    whole_effect = max(strength, 1e-6) / 9
    shares = np.clip(squared / whole_effect, -1, 1)
    chance = shares.mean()
    weights = scores / scores.sum()
    excess = weights @ shares - chance
    room = 1 - chance
    return strength, excess, room


def test_the_share_is_that_of_a_plain_loop(tmp_path):
    """Against the definition, written out for one model."""
    bench = write_bench(tmp_path)
    model = bench.models()[0]
    (row,) = judged(bench, [model], {"chance": by_chance})
    texts = bench.texts(model)
    numbers = []
    for text, scores in zip(texts, by_chance(model, texts), strict=True):
        numbers.append(by_definition(text, scores))
    strengths, excesses, rooms = np.array(numbers).T
    ascending = np.sort(strengths.clip(0))
    upper_half = ascending[len(texts) // 2 :]
    weight = np.clip(strengths / upper_half.mean(), 0, 1)
    weighted_excess = weight @ excesses
    weighted_room = weight @ rooms
    expected = weighted_excess / weighted_room
    assert row["share"] == pytest.approx(expected)
