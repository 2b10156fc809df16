"""Another attention, the same prediction: how different can it be? (Jain & Wallace 2019, section 4.2.2)"""

from dataclasses import replace

import numpy as np
import pandas as pd

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import Evidence, Measure, mean_of, share_of
from attnprobe.report.figures import telling
from attnprobe.report.figures.adversarial import (
    FAR,
    METRICS,
    adversarial_by_attention,
    adversarial_jsd,
    exclusivity_by_epsilon,
)
from attnprobe.report.figures.heatmap import heatmaps
from attnprobe.report.reading import Column, Drawing, Headline, HeatMap, Reading

MISSED = 0.01
"""Nats by which a search must fall short to be worth a word: far less than what the figures can show."""


def near_share(table: pd.DataFrame) -> Evidence | None:
    """Share of the examples for which no attention farther than `FAR` keeps the prediction.

    Where the optimum is only bracketed, the best attention known counts for the upper end of the interval and the
    certified upper bound for the lower end: that none was found does not say that there is none.
    """
    known = share_of("optimum_jsd", value=_near)(table)
    proved = share_of("upper_bound", value=_near)(table)
    return None if known is None or proved is None else replace(known, low=proved.low)


def _near(jsd: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(jsd), np.nan, jsd <= FAR)


def missed(found: np.ndarray, optimum: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Nats that the search stays below the optimum; NaN where nothing but the search is known of it."""
    return np.where(np.isnan(share), np.nan, optimum - found)


CLAIMS = (
    Claim(
        name="no_other_attention_exists",
        criterion="exclusivity",
        statement="For most texts no very different attention gives the same prediction",
        source="Jain & Wallace 2019, section 4.2.2, asked the other way round and of the exact optimum",
        measure=Measure(("optimum_jsd", "upper_bound"), near_share),
        quantity=f"share of the texts without such an attention, JSD > {FAR} nats within ε; more than half is asked for. "
        "That a search found none is no proof: what is not proved counts against the lower end",
        threshold=0.5,
        speaks="for",
        level="state",
        smallest=0.01,
        primary=True,
    ),
    Claim(
        name="the_search_falls_short",
        criterion="exclusivity",
        statement="The published gradient search ends below the largest JSD that there is",
        source="attnprobe: the search of Jain & Wallace 2019, section 4.2.2, compared with the exact solver",
        measure=mean_of("found_jsd", "optimum_jsd", "reached_share", value=missed),
        quantity=f"JSD of the farthest attention known minus that of the one found, nats; more than {MISSED} is asked for",
        threshold=MISSED,
        level="state",
    ),
)

READING = Reading(
    probe="adversarial",
    order=20,
    title="Adversarial attention: how different can it be with the same prediction?",
    about=(
        "For each text, the largest Jensen-Shannon divergence (JSD, 0 to ln 2 = 0.69 nats) between the model's "
        "attention and any other attention whose prediction is the same within a small total variation distance ε. The "
        "gradient search of the paper is compared with the optimum: exact where there are two classes, else bracketed "
        "by the farthest attention known and a certified upper bound; the share solved exactly is among the numbers. "
        "Where the decoder is not linear (questions) nothing but the search looks for it, and the bound is that of any "
        "attention at all, whatever it predicts: a tighter one would need linear limits of that decoder, which are not "
        "computed. Near ln 2, an attention on wholly other words would do as well. The known critique (Wiegreffe & "
        "Pinter 2019): such an attention exists for one text at a time and no trained model need ever produce it, so "
        "existence alone is weak evidence; compare it with the spread over seeds."
    ),
    claims=CLAIMS,
    maps=(
        HeatMap(
            "found_attention",
            "Adversary, found by search",
            "gradient search for a distant attention with the same prediction",
        ),
        HeatMap("optimum_attention", "Farthest attention", "the most distant attention known with the same prediction"),
    ),
    columns=(
        Column("optimum_jsd", "JSD of the farthest attention", leads=True),
        Column("found_jsd", "JSD of the found adversary", leads=True),
        Column("upper_bound", "upper bound of the JSD", sorts=False),
        Column("is_exact", "farthest attention is exact", sorts=False, truth=True),
        Column("found_tvd", "TVD of the found adversary", 4, sorts=False),
        Column("optimum_tvd", "TVD of the farthest attention", 4, sorts=False),
    ),
    headlines=(
        Headline("found_jsd", "largest JSD, gradient adversary", published="adversarial_max_jsd_mean", by_class=True),
        Headline("optimum_jsd", "largest JSD, farthest attention known", by_class=True),
        Headline("upper_bound", "largest JSD, certified upper bound"),
        Headline("is_exact", "share of examples solved exactly"),
        Headline("reached_share", "share of it that the search reached"),
        Headline("top_token_changed_found", "top token changed, gradient adversary"),
        Headline("top_token_changed_optimum", "top token changed, farthest attention known"),
    ),
    drawings=(
        Drawing("adversarial_jsd", adversarial_jsd, tuple(("adversarial", m) for m in METRICS), optional=()),
        Drawing(
            "adversarial_by_attention",
            adversarial_by_attention,
            tuple(("adversarial", metric) for metric in METRICS),
            optional=(),
        ),
        Drawing(
            "exclusivity_by_epsilon", exclusivity_by_epsilon, (("adversarial", "optimum_jsd_within"),), optional=()
        ),
        Drawing(
            "adversarial_heatmaps",
            heatmaps,
            tuple(
                ("adversarial", metric)
                for metric in ("found_jsd", "optimum_jsd", "max_attention", "found_attention", "optimum_attention")
            ),
            words=True,
            optional=tuple(("adversarial", metric) for metric in telling.METRICS),
            examples=telling.shown,
        ),
    ),
)
