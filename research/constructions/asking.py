"""A construction is asked as a run asks its model: probe, claims, judgement, chip."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.deciding_words import (
    OWN_CONTEXT_CLAIM,
    RELIABILITY_METRICS,
    SHARE_CLAIM,
    SHARE_METRICS,
    ShareOfClass,
    mean_reliability,
    shares_of_classes,
)
from attnprobe.evidence.verdicts import Chip, Verdict
from attnprobe.findings.chip import chip_of
from attnprobe.findings.judgement import Judgement, judgement_on
from attnprobe.findings.rules import judge
from attnprobe.probes.base import ProbeRunner
from attnprobe.probes.swaps import READING, Swaps
from research.constructions.models import Construction, Text, WithTable, mass, split_of

BATCH = 64


@dataclass(frozen=True)
class Outcome:
    """What the verdict says of a construction.

    Attributes:
        construction: what was asked.
        mass: weight on the words that decide, beyond chance; mean of the runs.
        line: the judgement on the words that decide.
        own_context: the same share where most other words stay.
        classes: the share of each predicted class.
        chip: may this attention be read?
        sentence: why.
        reliability: of the effects behind it.
        passes: of a text.
    """

    construction: Construction
    mass: float
    line: Judgement
    own_context: float
    classes: Sequence[ShareOfClass]
    chip: Chip
    sentence: str
    reliability: float
    passes: int

    @property
    def answer(self) -> str:
        """Yes, no, open or not asked."""
        if self.line.verdict is Verdict.NOT_INFORMATIVE:
            return "not asked"
        return str(self.line.answer)


def ask(construction: Construction, seed: int = 0) -> Outcome:
    """Write a construction's texts, and ask its model.

    Args:
        construction: what is asked.
        seed: of texts, attention and probe.
    """
    texts = construction.written(seed)
    models = [construction.model(texts, seed, run) for run in range(construction.runs)]
    return ask_models(construction, texts, models, seed)


def ask_models(
    construction: Construction, texts: Sequence[Text], models: Sequence[WithTable], seed: int = 0
) -> Outcome:
    """Ask the models of a construction, one per run.

    Args:
        construction: whose models they are.
        texts: that the models attend to.
        models: of each run.
        seed: of the probe.
    """
    table = pd.concat(
        [table_of(model, texts, seed, run) for run, model in enumerate(models)],
        ignore_index=True,
    )
    judgements = judge(put_to_test(READING.claims, table))
    chip, sentence = chip_of(judgements)
    masses = []
    for model in models:
        weights = [model.weights_of(number) for number in range(len(texts))]
        masses.append(mass(texts, weights))
    return Outcome(
        construction=construction,
        mass=float(np.mean(masses)),
        line=judgement_on(SHARE_CLAIM, judgements),
        own_context=judgement_on(OWN_CONTEXT_CLAIM, judgements).value,
        classes=shares_of_classes(*columns(table, *SHARE_METRICS, "predicted_class")),
        chip=chip,
        sentence=sentence,
        reliability=mean_reliability(*columns(table, *RELIABILITY_METRICS)),
        passes=int(columns(table, "swap_passes")[0].max()),
    )


def table_of(model: WithTable, texts: Sequence[Text], seed: int, run: int = 0) -> pd.DataFrame:
    """What the probe of a run measures of a model, as its long table."""
    split = split_of(texts)
    probe = Swaps()
    probe.prepare({"test": split})
    runner = ProbeRunner([probe], seed)
    for start in range(0, len(split), BATCH):
        batch = split[range(start, min(start + BATCH, len(split)))]
        with torch.no_grad():
            runner.run(model, batch, model(batch))
    identity: dict[str, Any] = dict.fromkeys(("experiment", "data", "model"), "constructed")
    identity |= {"run_id": f"run{run}", "seed": run, "split": "test", "probe": probe.name}
    return runner.rows[probe.name].table(identity).to_pandas()


def columns(table: pd.DataFrame, *metrics: str) -> list[Float[np.ndarray, "runs texts"]]:
    """Some metrics of a long table, one array each."""
    columns = []
    for metric in metrics:
        rows = table[table["metric"] == metric]
        values = rows.pivot_table(
            index="run_id", columns="example_id", values="value", observed=True, dropna=False
        )
        columns.append(values.to_numpy())
    return columns
