"""Intervals, and what may be decided by them: everything statistical of the report is in this room.

`interval` and `resampled_runs`: means, F1 and other numbers made of sums over texts, by the bootstrap over
texts, and over seeds as well where there are several. `over_pairs`: numbers of two runs each, every run a base in turn.
`wilson`, `clopper_pearson`, `paired_difference`: shares. `p_value`, `holm`, `discovered`: many decisions at a time.
`rank_biserial`: ranks. `is_too_rare`: when nothing may be said. How often their intervals hold the truth:
tests/results/statistics/test_coverage.py.
"""

from attnprobe.results.statistics.multiplicity import discovered, holm, p_value
from attnprobe.results.statistics.pairs import over_pairs
from attnprobe.results.statistics.ranks import rank_biserial
from attnprobe.results.statistics.rare import bernstein, is_too_rare
from attnprobe.results.statistics.resampling import (
    f1_of,
    interval,
    mean_of_parts,
    ratio_of,
    resampled_runs,
    student,
    student_of_groups,
)
from attnprobe.results.statistics.shares import clopper_pearson, paired_difference, wilson

__all__ = [
    "bernstein",
    "clopper_pearson",
    "discovered",
    "f1_of",
    "holm",
    "interval",
    "is_too_rare",
    "mean_of_parts",
    "over_pairs",
    "p_value",
    "paired_difference",
    "rank_biserial",
    "ratio_of",
    "resampled_runs",
    "student",
    "student_of_groups",
    "wilson",
]
