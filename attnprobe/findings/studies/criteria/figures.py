"""The numbers of the figures, which `attnprobe/report/studies/retraining.py` draws."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.evidence.evidence import Evidence
from attnprobe.findings.studies.base import StudyFigure


@dataclass(frozen=True)
class SeedScores(StudyFigure):
    """F1 of several models, each trained with several seeds.

    Attributes:
        data: the data set.
        f1: model → F1 of every seed, 0 to 1.
        mean: model → their mean with its interval over texts and seeds, as in the table beside it.
        published: model → the paper's F1, of models that the paper has.
    """

    data: str
    f1: Mapping[str, Float[np.ndarray, " seeds"]]
    mean: Mapping[str, Evidence]
    published: Mapping[str, float]


@dataclass(frozen=True)
class AttentionDistances(StudyFigure):
    """How far other attentions of the same texts are from the base's.

    Attributes:
        data: the data set.
        texts: a row per text. JSD to the base's attention in nats: `seeds` (median over the other
            seeds), and where adversaries were searched for `found_jsd` (by search) and
            `optimum_jsd` (by the solver). Of the base: `max_attention`, `predicted_class`.
        base: the base's run directory, which names the classes.
        optimum: what `optimum_jsd` is called; empty where no adversaries were searched for.
    """

    data: str
    texts: pd.DataFrame
    base: Path
    optimum: str


@dataclass(frozen=True)
class AdversaryCurve(StudyFigure):
    """How far attention moves against how far predictions do.

    Attributes:
        data: the data set.
        trained: adversaries trained end to end, a row per λ: `lambda`, and `TVD` and `JSD` with
            `… low` and `… high`.
        seeds: mean `tvd` and `jsd` to the base, a row per other seed; may be empty.
        single: means of the adversaries against single predictions: `found_tvd`, `found_jsd`,
            `optimum_tvd`, `optimum_jsd`.
        published: `TVD` and `JSD` of the paper's adversary; may be empty.
        optimum: what the solver's adversaries are called.
    """

    data: str
    trained: pd.DataFrame
    seeds: pd.DataFrame
    single: "pd.Series[float]"
    published: pd.DataFrame
    optimum: str
