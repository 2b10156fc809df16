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
        passes_of = seed if probe_seed is None else probe_seed
        table = table_of(construction.model(texts, seed), texts, passes_of)
        by_text = table[table["metric"] == "word_share"].sort_values(["example_id", "step"])
        shares = [rows["value"].to_numpy() for _, rows in by_text.groupby("example_id")]
        (strength,) = columns(table, "swap_strength")
        return cls(texts, shares, strength[0])

    def share(self, runs: Sequence[Sequence[Weights]]) -> Evidence:
        """The share of these weights, `[runs][texts]`, with its interval."""
        excess = [
            [
                weights @ shares - shares.mean()
                for weights, shares in zip(run, self.shares, strict=True)
            ]
            for run in runs
        ]
        room = [1 - shares.mean() for shares in self.shares]
        of_runs = np.ones((len(runs), 1))
        return share_on_deciding_words(
            np.array(excess), of_runs * np.array(room), of_runs * self.strength
        )
