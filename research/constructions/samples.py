"""One measurement of a data set, many attentions.

What words do is measured without a look at the attention, so that the share of any weights follows
from the same passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from attnprobe.evidence.deciding_words import share_on_deciding_words
from attnprobe.evidence.evidence import Evidence
from research.constructions.asking import columns, table_of
from research.constructions.models import Construction, Text, Weights


@dataclass(frozen=True)
class MeasuredTexts:
    """What the words of each text do.

    Attributes:
        texts: as they were written.
        shares: how far each word of a text is one that decides.
        strength: of the strongest word of each text.
    """

    texts: Sequence[Text]
    shares: Sequence[Float[np.ndarray, " words"]]
    strength: Float[np.ndarray, " texts"]

    @classmethod
    def of(
        cls, construction: Construction, seed: int, probe_seed: int | None = None
    ) -> "MeasuredTexts":
        """The texts of a draw; the passes are of another seed where one is named."""
        texts = construction.written(seed)
        model = construction.model(texts, seed)
        table = table_of(model, texts, seed if probe_seed is None else probe_seed)
        word_rows = table[table["metric"] == "word_share"].sort_values(["example_id", "step"])
        shares = [rows["value"].to_numpy() for _, rows in word_rows.groupby("example_id")]
        (strength,) = columns(table, "swap_strength")
        return cls(texts, shares, strength[0])

    def share(self, runs: Sequence[Sequence[Weights]]) -> Evidence:
        """The share of these weights, `[runs][texts]`, with its interval."""
        excess = []
        for run in runs:
            run_excess = []
            for weights, shares in zip(run, self.shares, strict=True):
                run_excess.append(weights @ shares - shares.mean())
            excess.append(run_excess)
        room = np.array([1 - shares.mean() for shares in self.shares])
        every_run = (len(runs), 1)
        return share_on_deciding_words(
            np.array(excess), np.tile(room, every_run), np.tile(self.strength, every_run)
        )
