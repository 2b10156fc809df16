import numpy as np
import pytest

from attnprobe.plots.example_selection import ALL, EVENLY, select_examples

IDS = np.arange(0, 2000, 2)


def ranked(values, rows):
    """The rows by value, the largest first; of equal ones the first."""
    return sorted(rows, key=lambda row: (-values[row], row))


def plain(ids, most, scores, groups):
    """The extremes by a plain loop: every score's next example of every group, the larger values
    first."""
    members = {group: np.flatnonzero(groups == group).tolist() for group in sorted(set(groups))}
    chosen = {}
    for rank in range(len(ids)):
        for name, values in scores.items():
            rankings = [ranked(values, rows) for rows in members.values()]
            next_rows = [ranking[rank] for ranking in rankings if len(ranking) > rank]
            for row in sorted(next_rows, key=lambda row: -values[row]):
                if len(chosen) < most:
                    chosen.setdefault(int(ids[row]), name)
    return chosen


def test_half_are_the_extremes_of_every_score_and_group_in_turn_and_half_evenly_spaced():
    draw = np.random.default_rng(0)
    scores = {"a": draw.random(200), "b": draw.random(200)}
    groups = draw.integers(0, 3, 200)
    chosen = select_examples(IDS[:200], 21, scores=scores, groups=groups)
    extremes = dict(list(chosen.items())[:10])
    assert extremes == plain(IDS[:200], 10, scores, groups)
    rest = [number for number in IDS[:200].tolist() if number not in extremes]
    assert list(chosen)[10:] == [rest[round(k * 189 / 10)] for k in range(11)]
    assert set(list(chosen.values())[10:]) == {EVENLY}


def test_without_scores_all_are_evenly_spaced_and_undefined_numbers_choose_nothing():
    even = select_examples(IDS, 5)
    assert list(even) == [0, 500, 1000, 1498, 1998]
    assert select_examples(IDS, 5, scores={"a": np.full(1000, np.nan)}) == even
    single = np.where(np.arange(1000) == 7, 1.0, np.nan)
    assert next(iter(select_examples(IDS, 5, scores={"a": single}, evenly=0))) == 14


@pytest.mark.parametrize("most", [0, 1, 2, 9, 1000, 5000])
def test_never_more_than_asked_for(most):
    chosen = select_examples(IDS, most, scores={"a": np.ones(1000)})
    assert len(chosen) == min(most, 1000)
    assert (set(chosen.values()) == {ALL}) == (most >= 1000)


def test_preferred_examples_are_shown_if_they_are_enough():
    prefer = np.isin(IDS, [2, 4, 8, 10])
    assert list(select_examples(IDS, 2, prefer=prefer)) == [2, 10]
    assert list(select_examples(IDS, 4, prefer=prefer)) == [2, 4, 8, 10]
    assert list(select_examples(IDS, 5, prefer=prefer)) == list(select_examples(IDS, 5))
