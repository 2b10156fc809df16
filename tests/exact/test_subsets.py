import ast
import itertools
import math
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnprobe import UserError
from attnprobe.exact import (
    banzhaf_values,
    complement,
    minimal_sets,
    prefix_limits,
    shapley_values,
    smallest_set,
)
from attnprobe.exact.subsets import shapley_interactions


def tables(batch, words, *, seed, grid=False):
    """Random numbers for all subsets; on the grid, small integers: full of ties and exact in
    float64."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, 2**words)
    if grid:
        return torch.randint(-2, 3, shape, generator=generator).double()
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def mask(words):
    """The number of a set: bit k is set where word k is a member."""
    return sum(1 << word for word in words)


def prefixes(order):
    """Masks of the first word of an order, of the first two, and so on."""
    masks = []
    for count in range(1, len(order) + 1):
        masks.append(mask(order[:count]))
    return masks


def area(drop, order):
    """The mean drop over the prefixes of an order."""
    drops = [drop[prefix] for prefix in prefixes(order)]
    return math.fsum(drops) / len(order)


@pytest.mark.parametrize("words", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("grid", [False, True])
def test_limits_are_those_of_all_orders(words, grid):
    drop = tables(3, words, seed=words, grid=grid)
    drop[:, 0] = 0
    limits = prefix_limits(drop)
    for row, table in enumerate(drop.tolist()):
        areas = []
        for order in itertools.permutations(range(words)):
            areas.append(area(table, order))
        largest = pytest.approx(max(areas), abs=1e-12)
        smallest = pytest.approx(min(areas), abs=1e-12)
        assert limits.upper[row].item() == largest
        assert limits.lower[row].item() == smallest

        upper_order = limits.upper_order[row].tolist()
        lower_order = limits.lower_order[row].tolist()
        assert area(table, upper_order) == largest
        assert area(table, lower_order) == smallest


@pytest.mark.parametrize("words", [1, 2, 4, 5])
def test_shapley_values_are_the_mean_over_all_orders(words):
    value = tables(2, words, seed=words)
    shapley = shapley_values(value)
    orders = math.factorial(words)
    for values, table in zip(shapley, value.tolist(), strict=True):
        gains = np.zeros(words)
        for order in itertools.permutations(range(words)):
            before = 0
            for word, prefix in zip(order, prefixes(order), strict=True):
                gains[word] += table[prefix] - table[before]
                before = prefix
        assert_allclose(values, gains / orders, atol=1e-12)
        whole_gain = table[-1] - table[0]
        assert values.sum().item() == pytest.approx(whole_gain, abs=1e-12)


@pytest.mark.parametrize("values_of", [shapley_values, banzhaf_values])
def test_values_of_words_removed_and_of_words_kept_are_the_same(values_of):
    value = tables(3, 5, seed=0)
    value_of_all = value[:, -1:]
    drop = value_of_all - complement(value)
    assert_close(values_of(drop), values_of(value), atol=1e-12, rtol=0)


def test_interactions_of_words_removed_are_those_of_words_kept_with_the_other_sign():
    value = tables(3, 5, seed=0)
    drop = value[:, -1:] - complement(value)
    expected = -shapley_interactions(value)
    assert_close(shapley_interactions(drop), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("word", range(4))
def test_banzhaf_values_are_the_mean_over_all_sets(word):
    [value] = tables(1, 4, seed=3).tolist()
    itself = mask([word])
    gains = []
    for members in range(16):
        if not members & itself:
            gain = value[members | itself] - value[members]
            gains.append(gain)
    mean_gain = np.mean(gains)
    [values] = banzhaf_values(torch.tensor([value])).tolist()
    assert values[word] == pytest.approx(mean_gain, abs=1e-6)


@pytest.mark.parametrize("words", [1, 2, 4])
def test_interactions_follow_their_definition(words):
    value = tables(1, words, seed=words)
    [table] = value.tolist()
    expected = np.zeros((words, words))
    for i, j in itertools.permutations(range(words), 2):
        expected[i, j] = interaction(table, words, i, j)
    [interactions] = shapley_interactions(value)
    assert_allclose(interactions, expected, atol=1e-12, rtol=0)


def interaction(table, words, i, j):
    """What two words add together beyond what each adds: Σ_S |S|! (n − |S| − 2)! / (n − 1)! times
    v(S ∪ {i, j}) − v(S ∪ {i}) − v(S ∪ {j}) + v(S), over the sets S without the two."""
    word_i = mask([i])
    word_j = mask([j])
    both = word_i | word_j
    total = 0.0
    for members in range(2**words):
        if members & both:
            continue
        size = members.bit_count()
        others = words - size - 2
        weight = math.factorial(size) * math.factorial(others)
        with_both = table[members | both]
        with_i = table[members | word_i]
        with_j = table[members | word_j]
        surplus = with_both - with_i - with_j + table[members]
        total += weight * surplus
    return total / math.factorial(words - 1)


@pytest.mark.parametrize("words", [1, 3, 5])
def test_minimal_sets_have_no_smaller_one_within(words):
    holds = tables(4, words, seed=words) > 0.7
    minimal = minimal_sets(holds)
    for row, table in enumerate(holds.tolist()):
        for members in range(2**words):
            is_minimal = table[members]
            for smaller in range(members):
                is_within = smaller & members == smaller
                if is_within and table[smaller]:
                    is_minimal = False
            assert minimal[row, members].item() == is_minimal


def test_the_smallest_set_is_the_first_of_the_smallest():
    holds = tables(50, 4, seed=1) > 1.2
    smallest = smallest_set(holds)
    assert (smallest.size == -1).any(), "a text without any set is what the test is about"
    assert (smallest.size == 0).any(), "so is one where the empty set does it"
    for row, table in enumerate(holds.tolist()):
        sets = np.flatnonzero(table).tolist()
        first = min(sets, key=int.bit_count, default=0)
        size = first.bit_count() if sets else -1
        is_member = smallest.members[row]
        words = is_member.nonzero()[:, 0].tolist()
        assert smallest.size[row].item() == size
        assert mask(words) == first


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (torch.zeros(4), "shape"),
        (torch.zeros(1, 3), "2\\*\\*n"),
        (torch.zeros(1, 4, dtype=torch.long), "torch.int64.*double"),
        (torch.tensor([[0.0, float("nan")]]), "not finite in row 0"),
        (torch.tensor([[0.0, 0.0], [0.5, 1.0]]), r"drop\[1, 0\] is 0.5: expected 0"),
    ],
)
def test_a_table_that_is_none_is_refused(table, message):
    with pytest.raises(UserError, match=message):
        prefix_limits(table)
    with pytest.raises(UserError, match=r"expected torch.bool|2\*\*n"):
        minimal_sets(table)


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("model", "out_of_reach"),
    [
        ("bert-base-uncased-SST-2", [19]),
        ("roberta-base-imdb", [20, 47, 48]),
    ],
)
def test_limits_are_the_authors(model, out_of_reach):
    """Stored outputs and limits of Edin et al. 2025. Two conventions of the released limits explain
    every difference: the target is the positive class, also where the model decides for the
    negative one; and the search for the upper limit starts from 0, so that where every order's
    proper prefixes sum to less, the stored limit is drop(all)/n, which none reaches."""
    folder = Path(os.environ.get("ATTNPROBE_DATA_DIR", "")) / "naopc"
    if "ATTNPROBE_DATA_DIR" not in os.environ or not folder.is_dir():
        pytest.skip("no naopc below ATTNPROBE_DATA_DIR")
    outputs = pd.read_parquet(folder / f"outputs_sst2_{model}.parquet")
    limits = pd.read_parquet(folder / f"limits_sst2_{model}.parquet").set_index("id")
    beyond = []
    for text, rows in outputs.groupby("id"):
        theirs = limits.loc[text]
        words = int(theirs.number_of_elements)
        drop = stored_drops(rows, words)
        ours = prefix_limits(drop[None])
        lower = ours.lower.item()
        upper = ours.upper.item()
        from_zero = drop[-1].item() / words
        if upper < from_zero:
            beyond.append(text)
            upper = from_zero
        assert lower == pytest.approx(theirs.lower_limit, abs=1e-9), text
        assert upper == pytest.approx(theirs.upper_limit, abs=1e-9), text
    assert len(limits) == 66
    assert beyond == out_of_reach


def stored_drops(rows, words):
    """By how much the positive class's probability drops, for each set of removed words."""
    masks = []
    for removed in rows.word_key:
        numbers = ast.literal_eval(removed)  # from 1
        masks.append(mask({number - 1 for number in numbers}))
    sets = 2**words
    assert set(masks) == set(range(sets))
    logits = np.zeros((sets, 2))
    logits[masks] = rows[["negative_logit", "positive_logit"]]
    _, positive = torch.from_numpy(logits).softmax(-1).unbind(-1)
    return positive[0] - positive
