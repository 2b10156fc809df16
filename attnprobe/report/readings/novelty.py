"""Texts without words, and how unlike whole ones they are."""

import re

import numpy as np
import pandas as pd

from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Headline, Reading, Tabulation
from attnprobe.report.wide import facets, mean_in_columns, per_example

PROBE = "novelty"
MARK = "novelty_p_without_"
UNLIKE = 0.05
"""A p-value below this is that of an unlike text."""


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Mean p-values, and shares of unlike texts, of every importance and operator, per data set and model."""
    ends = [re.fullmatch(r"(.+)_by_(\w+?)", end) for end in importances_in(results, PROBE, MARK)]
    pairs = [(end[1], end[2]) for end in ends if end]
    kinds = {"without them": "without", "alone": "alone"}
    metrics = [f"novelty_p_{kind}_{name}_by_{operator}" for name, operator in pairs for kind in kinds.values()]
    lines = []
    for facet in facets(per_example(results, PROBE, ["novelty_p", *metrics])) if pairs else []:
        whole = facet.rows["novelty_p"].to_numpy()
        for name, operator in pairs:
            line: dict[str, object] = {"data and model": facet.title}
            line |= {"importance": facts_of(name, results, PROBE).title, "operator": operator, "n": len(whole)}
            line["unlike, whole texts"] = unlike(whole)
            for heading, kind in kinds.items():
                values = facet.rows[f"novelty_p_{kind}_{name}_by_{operator}"].to_numpy()
                line |= {f"unlike, {heading}": unlike(values)} | mean_in_columns(f"p, {heading}", values)
            lines.append(line)
    return pd.DataFrame(lines)


def unlike(p_values: np.ndarray) -> float:
    """Share of the texts that are unlike; NaN of none."""
    known = p_values[~np.isnan(p_values)]
    return float((known < UNLIKE).mean()) if len(known) else float("nan")


READING = Reading(
    probe=PROBE,
    title="Novelty: are texts without words like those that the model knows?",
    about=(
        "What erasing words does to a prediction says little if the model has never seen such a text. Each text is compared "
        "with held-out ones, by what the attention gives the decoder: the p-value is the share of held-out texts whose "
        "nearest neighbour is as far. It is even from 0 to 1 for texts like these; of whole test texts 5 % are below 0.05."
    ),
    order=66,
    headlines=(Headline("novelty_p", "p-value of the whole texts (0.5 is expected)"),),
    tables=(
        Tabulation(
            "novelty",
            "Shares of n texts that are unlike held-out ones (p < 0.05), whole, without the highest-scored words and with "
            "these alone, and mean p-values with 95 % bootstrap intervals.",
            rows,
        ),
    ),
)
