"""Leave-one-out by definition: every shortened text is encoded, attended to and decoded."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.batch import Batch, Outputs
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
        _, attention = classifier.attend(hidden, classifier.content(text), query)
        yield rows, places, classifier.decode(hidden, attention, query, text.candidates)


def shortened(batch: Batch, example: Int[Tensor, "texts"], removed: Int[Tensor, "texts"]) -> Batch:
    """The texts of `example`, each without its token at `removed`."""
    place = torch.arange(batch.ids.shape[1] - 1, device=batch.ids.device)
    source = place + (place >= removed.unsqueeze(1)).long()
    text = rows_of(batch, example)
    return replace(
        text,
        ids=text.ids.gather(1, source),
        mask=text.mask.gather(1, source),
        content=text.content.gather(1, source),
        sentence=None if text.sentence is None else text.sentence.gather(1, source),
    )


def rows_of(batch: Batch, rows: Int[Tensor, "rows"]) -> Batch:
    """Some examples of a batch, in this order, as often as they are asked for: what a model reads of them."""
    optional = {
        "sentence": batch.sentence,
        "question": batch.question,
        "question_mask": batch.question_mask,
        "candidates": batch.candidates,
    }
    return Batch(
        ids=batch.ids[rows],
        mask=batch.mask[rows],
        content=batch.content[rows],
        labels=batch.labels[rows],
        example_id=batch.example_id[rows],
        **{name: None if value is None else value[rows] for name, value in optional.items()},
    )


def trimmed(batch: Batch, width: int) -> Batch:
    """Without the columns that are padding in every row."""
    return replace(
        batch,
        ids=batch.ids[:, :width],
        mask=batch.mask[:, :width],
        content=batch.content[:, :width],
        sentence=None if batch.sentence is None else batch.sentence[:, :width],
        rationale=None if batch.rationale is None else batch.rationale[:, :width],
        teacher_attention=None if batch.teacher_attention is None else batch.teacher_attention[:, :width],
    )


def rows_of_outputs(outputs: Outputs, rows: Int[Tensor, "rows"]) -> Outputs:
    """The outputs of some examples."""
    return replace(
        outputs,
        logits=outputs.logits[rows],
        attention=outputs.attention[rows],
        scores=outputs.scores[rows],
        hidden=outputs.hidden[rows],
        content=outputs.content[rows],
        query=None if outputs.query is None else outputs.query[rows],
    )


def trimmed_outputs(outputs: Outputs, width: int) -> Outputs:
    """Without the columns that are padding in every row."""
    return replace(
        outputs,
        attention=outputs.attention[:, :width],
        scores=outputs.scores[:, :width],
        hidden=outputs.hidden[:, :width],
        content=outputs.content[:, :width],
    )
