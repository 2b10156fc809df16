"""Leave-one-out by definition: every shortened text is encoded, attended to and decoded."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.batch import Axis, Batch, Outputs
from attnprobe.models.classifier import AttentionClassifier


def reencoded(
    classifier: AttentionClassifier,
    batch: Batch,
    outputs: Outputs,
    example: Int[Tensor, "texts"],
    removed: Int[Tensor, "texts"],
    chunk: int,
) -> Iterator[tuple[Int[Tensor, "some"], Int[Tensor, "some"], Float[Tensor, "some classes"]]]:
    """`(example, removed, logits)` of the texts of `example`, each without its token at `removed`, a few at a time: as
    many as have no more than `chunk` positions together."""
    size = max(1, chunk // batch.ids.shape[1])
    for rows, places in zip(example.split(size), removed.split(size), strict=True):
        if not len(rows):
            return
        text = shortened(batch, rows, places)
        hidden = classifier.encode(text)
        query = None if outputs.query is None else outputs.query[rows]
        _, attention = classifier.attend(hidden, classifier.content(text), query, classifier.attention.given(text))
        yield rows, places, classifier.decode(hidden, attention, query, text.candidates)


def shortened(batch: Batch, example: Int[Tensor, "texts"], removed: Int[Tensor, "texts"]) -> Batch:
    """The texts of `example`, each without its token at `removed`."""
    place = torch.arange(batch.ids.shape[1] - 1, device=batch.ids.device)
    source = place + (place >= removed.unsqueeze(1)).long()
    # what a teacher said of the whole text is not what it would say of a shortened one
    alone = replace(batch, teacher_attention=None, teacher_probability=None)
    return alone.rows(example).changed(lambda axis, column: column.gather(1, source) if axis is Axis.TOKENS else column)
