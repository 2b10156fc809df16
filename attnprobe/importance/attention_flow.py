"""How much could flow from each word to the deciding state, attention being the width of the pipes? (Abnar & Zuidema 2020)"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

from attnprobe.importance.base import Subject
from attnprobe.importance.followed import Followed, layers_of
from attnprobe.importance.rollout import rollout_maps
from attnprobe.models.base import Layers

UNIT = 1 << 28
"""The flow is computed in whole numbers; this is a flow of 1."""


@dataclass(frozen=True)
class AttentionFlow(Followed):
    """The greatest flow from the deciding state down to the pieces of a word, where ½ (A + I) of each layer, A the mean over
    its heads, says how much an edge can carry. 0 to 1, and words need not add up to 1.

    A greatest flow per word (SciPy): for L layers and n pieces there are L n² edges.
    """

    name: ClassVar[str] = "attention_flow"
    title: ClassVar[str] = "attention flow"
    colour: ClassVar[str] = "#4682B4"

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Float[Tensor, "batch parts parts"]]:
        """½ (A + I)."""
        return rollout_maps(layers)

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 to 1; 0 outside content."""
        layers = subject.cached(layers_of)
        assert layers is not None
        maps = torch.stack(list(self.maps(subject, layers)), 1).cpu().numpy()
        content, word = subject.batch.content, subject.classifier.word_of(subject.batch).cpu().numpy()
        scores = torch.zeros(content.shape, dtype=torch.float64)
        for text in range(len(content)):
            parts = int(layers.mask[text].sum())
            read = np.full(parts, 1 / parts) if layers.row is None else np.eye(parts)[int(layers.row[text])]
            for place in content[text].nonzero()[:, 0].tolist():
                into = np.flatnonzero(word[text, :parts] == place)
                scores[text, place] = greatest_flow(maps[text, :, :parts, :parts], read, into)
        return scores.to(content.device)


def greatest_flow(
    maps: Float[np.ndarray, "layers parts parts"], read: Float[np.ndarray, "parts"], into: Sequence[int] | np.ndarray
) -> float:
    """From a source that is joined to the top layer's states by `read`, down to the parts `into`, which end in one sink.

    Args:
        maps: of each layer, first layer first, what an edge from a state (row) to one before the layer (column) can carry.
    """
    layers, parts = maps.shape[:2]
    nodes = (layers + 1) * parts
    layer, upper, lower = np.nonzero(maps)
    source, sink = nodes, nodes + 1
    begins = [(layer + 1) * parts + upper, np.full(parts, source), np.asarray(into)]
    ends = [layer * parts + lower, layers * parts + np.arange(parts), np.full(len(into), sink)]
    carried = [maps[layer, upper, lower], read, np.ones(len(into))]
    capacity = np.rint(np.concatenate(carried) * UNIT).astype(np.int32)
    where = (np.concatenate(begins), np.concatenate(ends))
    graph = coo_array((capacity, where), shape=(nodes + 2, nodes + 2)).tocsr()
    return float(maximum_flow(graph, source, sink).flow_value) / UNIT
