"""The global view as a table: of each run that has the probe `words` a row per word of the corpus."""

from collections.abc import Iterable, Iterator

import pandas as pd

from attnprobe.report.numbers import Numbers
from attnprobe.report.readings.words import FEWEST, PROBE, STEPS, word_table
from attnprobe.report.tables import Table
from attnprobe.results.directory import RunDirectory

CAPTION = (
    f"Every word that is in {FEWEST} texts or more: its attention in shares of an even one, the effect of leaving it out, "
    "beyond that of its texts' other words, flips of the decision and direction, with Student's 95 % intervals over the "
    "texts and p-values adjusted by Benjamini and Hochberg; kind says which words matter and are hidden, or are attended "
    "to and idle."
)


def words_of(run: RunDirectory, numbers: Numbers, split: str) -> pd.DataFrame:
    """The table of one run; no rows where it has no such probe, or no word is in texts enough.

    Args:
        run: whose texts.
        numbers: its own.
        split: whose examples were probed.
    """
    if PROBE not in numbers.probes:
        return pd.DataFrame()
    return word_table(numbers.rows(PROBE, (), stepped=STEPS), run.examples(split).to_pandas())


def word_tables(runs: Iterable[tuple[RunDirectory, Numbers, str]]) -> Iterator[Table]:
    """The tables of these runs (see `words_of`) that have rows; of several each is called by its run."""
    several = list(runs)
    for run, numbers, split in several:
        rows = words_of(run, numbers, split)
        if len(rows):
            name = "word_table" if len(several) == 1 else f"word_table-{run.path.name}"
            yield Table(name, CAPTION, rows)
