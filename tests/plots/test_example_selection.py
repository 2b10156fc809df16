import numpy as np
import pytest

from attnprobe.plots.example_selection import ALL, EVENLY, select_examples

IDS = np.arange(0, 2000, 2)


def ranked(values, rows):
    """The rows by value, the largest first; of equal ones the first."""
    return sorted(rows, key=lambda row: (-values[row], row))


def extremes_by_loop(ids, most, scores, groups):
    """Every score's next example of every group in turn, the larger values first."""
    chosen = {}
    for rank in range(len(ids)):
        for name, values in scores.items():
            next_rows = []
            for group in np.unique(groups):
                ranking = ranked(values, np.flatnonzero(groups == group))
                next_rows += ranking[rank : rank + 1]
            for row in ranked(values, next_rows):
                if len(chosen) < most:
                    chosen.setdefault(ids[row], name)
    return chosen


@pytest.fixture(scope="module")
def scored():
    """The arguments of a choice among 200 examples of three groups by two scores."""
    draw = np.random.default_rng(0)
    return {
        "scores": {"a": draw.random(200), "b": draw.random(200)},
        "groups": draw.integers(0, 3, 200),
    }


def test_half_are_the_extremes_of_every_score_and_group_in_turn(scored):
    ids = IDS[:200].tolist()
    chosen = select_examples(IDS[:200], 21, **scored)
    extremes = dict(list(chosen.items())[:10])
    assert extremes == extremes_by_loop(ids, 10, **scored)


def test_half_are_evenly_spaced_among_the_rest(scored):
    chosen = select_examples(IDS[:200], 21, **scored)
    numbers = list(chosen)
    rest = [number for number in IDS[:200] if number not in numbers[:10]]
    assert len(rest) == 190
    assert numbers[10:] == [rest[round(k * 189 / 10)] for k in range(11)]
    assert {chosen[number] for number in numbers[10:]} == {EVENLY}


def test_without_scores_all_are_evenly_spaced():
    assert list(select_examples(IDS, 5)) == [0, 500, 1000, 1498, 1998]


def test_undefined_numbers_choose_nothing():
    undefined = np.full(1000, np.nan)
    chosen = select_examples(IDS, 5, scores={"a": undefined})
    assert chosen == select_examples(IDS, 5)


def test_the_only_number_that_is_defined_chooses_its_example():
    values = np.full(1000, np.nan)
    values[7] = 1.0
    first, *_ = select_examples(IDS, 5, scores={"a": values}, evenly=0)
    assert first == 14


@pytest.mark.parametrize("most", [0, 1, 2, 9, 1000, 5000])
def test_never_more_than_asked_for(most):
    chosen = select_examples(IDS, most, scores={"a": np.ones(1000)})
    are_all_chosen = most >= 1000
    assert len(chosen) == min(most, 1000)
    assert (set(chosen.values()) == {ALL}) == are_all_chosen


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (2, [2, 10]),
        (4, [2, 4, 8, 10]),
    ],
)
def test_preferred_examples_are_shown_if_they_are_enough(most, expected):
    prefer = np.isin(IDS, [2, 4, 8, 10])
    assert list(select_examples(IDS, most, prefer=prefer)) == expected


def test_preferred_examples_do_not_matter_if_they_are_too_few():
    prefer = np.isin(IDS, [2, 4, 8, 10])
    chosen = select_examples(IDS, 5, prefer=prefer)
    assert list(chosen) == list(select_examples(IDS, 5))
