"""The shipped rates of the bench: how well does each importance find the words that decide?"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.core.sanitise import percent_ends
from attnprobe.evidence.statistics import Interval
from attnprobe.findings.bench.judging import ALL, BenchRates

RATES = Path(__file__).parent / "rates.csv"
"""A row per importance and `encoder`: `all` of the bench's, or one kind; written by
`python -m research.bench rank`."""


@cache
def shipped_rates() -> pd.DataFrame:
    """All rates by importance and encoder; see `RATES`."""
    return pd.read_csv(RATES, index_col=["scores", "encoder"])


def bench_rates(importance: str, encoder: str = ALL) -> BenchRates | None:
    """The shipped rates of an importance.

    Args:
        importance: its name.
        encoder: kind of model; `ALL`: all kinds of the bench.

    Returns:
        None where the bench has none: the importance is not built in, or not defined for all kinds.
    """
    rates = shipped_rates()
    if (importance, encoder) not in rates.index:
        return None
    (row,) = rates.loc[[(importance, encoder)]].to_dict("records")
    return BenchRates(
        scores=importance,
        kind=ALL,
        models=row["models"],
        rules=row["rules"],
        asked=row["asked"],
        texts=row["texts"],
        auroc=_interval(row, "auroc"),
        average_precision=_interval(row, "average_precision"),
        truth=_interval(row, "truth"),
        share=_interval(row, "share"),
        yes=_interval(row, "yes"),
    )


def _interval(row: Mapping[Any, Any], name: str) -> Interval:
    """A number of the shipped table with the ends that stand beside it."""
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])


def beside_attention_on_bench(importance: str) -> str:
    """How an importance and attention fare where the words that decide are known, in a sentence.

    Both are of the same models: of all kinds where the importance is defined for all, else of
    transformers. Empty where the bench knows nothing of it.
    """
    for encoder in (ALL, "transformer"):
        rates = bench_rates(importance, encoder)
        attention = bench_rates("attention", encoder)
        if rates is not None and attention is not None:
            small_models = "small models" if encoder == ALL else "small transformers"
            return (
                f"On {rates.models} {small_models} of {rates.rules} rules whose deciding words are "
                f"known, it ranks them above the other words in {_percent(rates.auroc)} of the "
                f"pairs (attention: {_percent(attention.auroc)})."
            )
    return ""


def _percent(share: Interval) -> str:
    """Such as `98 % [95, 100]`; without brackets where there is no interval."""
    percentage = f"{100 * share.value:.0f} %"
    if math.isnan(share.low):
        return percentage
    return f"{percentage} {percent_ends(share.low, share.high)}"
