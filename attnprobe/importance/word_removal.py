"""What a model predicts once words are gone, for each way in which they can be made to go.

All on ids, unless a model wants its texts read again (`Model.reread`).
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Axis, Batch, Outputs, probabilities
from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError
from attnprobe.data.batching import short_enough
from attnprobe.data.vocabulary import PADDING
from attnprobe.importance.base import Subject
from attnprobe.models.base import Model

OPERATORS = {
    "delete": "the word is taken out, and the text closes up",
    "mask": "the model's mask takes its place: a tokenizer's mask token, or the unknown word",
    "zeros": "the zero vector takes its vector's place",
    "mean": "the mean vector of the text's words takes its vector's place",
    "attention": "its attention is set to 0, and the rest renormalised; its state stays",
}
"""Ways in which a word goes."""
AT_ONCE = 8192
"""Parts of changed texts that go through a model at a time."""
KnownTexts = dict[tuple[int, bytes], Float[Tensor, "classes"]]
"""The predictions of a batch's texts without some words, by text, operator and words."""


def refuse_mask(
    probe: str, operators: Sequence[str], known: Collection[str], classifier: Model
) -> None:
    """Refuse the operator `mask` where the model's tokenizer has no mask token.

    Args:
        probe: the name of the one that asks.
        operators: that it is set to.
        known: that it may be set to.
        classifier: the model.

    Raises:
        UserError: `mask` is asked for, and there is no mask token.
    """
    if "mask" in operators and classifier.mask is None:
        *alternatives, last = (operator for operator in known if operator != "mask")
        raise UserError(
            f"probe.{probe}.operators: mask: this model's tokenizer has no mask token; take "
            f"{', '.join(alternatives)} or {last}"
        )


def removable(text: Bool[Tensor, "batch seq"]) -> tuple[Int[Tensor, "texts"], Int[Tensor, "texts"]]:
    """Example and place of every position of the texts that is not its text's only one."""
    example, removed = (text & (text.sum(1, keepdim=True) > 1)).nonzero(as_tuple=True)
    return example, removed


def words_at(
    model: Model, batch: Batch, positions: Bool[Tensor, "*samples batch seq"]
) -> Bool[Tensor, "*samples batch tokens"]:
    """The words of these positions of the attention: each a word, or a sentence of several."""
    position = model.position_of(batch)
    chosen = positions.gather(-1, position.clamp(min=0).expand(*positions.shape[:-1], -1))
    return chosen & (position >= 0)


def deleted(batch: Batch, gone: Bool[Tensor, "batch tokens"]) -> Batch:
    """The texts without some of their words, closed up.

    Padded at the end to the longest that is left: of few words a pass then costs little. What a
    teacher said of the whole texts is left out.
    """
    order = gone.long().argsort(dim=-1, stable=True)
    count = (batch.mask & ~gone).sum(-1, keepdim=True)
    padding = torch.arange(order.shape[1], device=order.device) >= count
    untaught = replace(batch, teacher_attention=None, teacher_probability=None)
    shorter = untaught.changed(
        lambda axis, column: column.gather(1, order) if axis is Axis.TOKENS else column
    )
    sentence = None if shorter.sentence is None else shorter.sentence.masked_fill(padding, -1)
    return replace(
        shorter.with_pieces_of(batch, gone),
        ids=shorter.ids.masked_fill(padding, PADDING),
        mask=shorter.mask & ~padding,
        content=shorter.content & ~padding,
        sentence=sentence,
    ).cut(int(count.max()))


def known_texts(subject: Subject) -> KnownTexts:
    """An empty store for a batch: each changed text is read once, whoever asks for it."""
    return {}


def keys_of(
    example: Int[Tensor, "texts"], gone: Bool[Tensor, "texts tokens"], operator: str
) -> list[tuple[int, bytes]]:
    """Under which changed texts are known."""
    packed = np.packbits(gone.cpu().numpy(), axis=-1)
    return [
        (row, operator.encode() + words.tobytes())
        for row, words in zip(example.tolist(), packed, strict=True)
    ]


def predictions_keeping(
    subject: Subject, keep: Bool[Tensor, "*samples batch seq"], operator: str
) -> Float[Tensor, "*samples batch classes"]:
    """Predict the texts with some of their words, or of their sentences, gone.

    Args:
        subject: the model and the batch.
        keep: the positions that stay; markers and padding stay anyway.
        operator: how the others go, one of the `OPERATORS`.

    Returns:
        Class probabilities in float64. NaN where no position is left and the operator needs one
        (`delete`, `attention`), and where the word that is asked about would be deleted.
    """
    batch = subject.batch
    needs_word = operator in ("delete", "attention")
    text = subject.outputs.text
    undefined = ~(keep & text).any(-1, keepdim=True) & needs_word
    if operator == "delete" and batch.asked is not None:  # the word whose class is asked for
        undefined = undefined | (~keep & (batch.asked != 0)).any(-1, keepdim=True)
    gone = text & ~keep & ~undefined
    with torch.no_grad():
        if operator == "attention":
            attention = subject.readout.attention.masked_fill(gone, 0)
            predicted = subject.readout.predict(attention / attention.sum(-1, keepdim=True))
        else:
            words = words_at(subject.classifier, batch, gone)
            predicted = _read_without(subject, words, operator)
    return torch.where(undefined, torch.nan, predicted.double())


def _read_without(
    subject: Subject, gone: Bool[Tensor, "*samples batch tokens"], operator: str
) -> Float[Tensor, "*samples batch classes"]:
    """Class probabilities of changed texts, each of which is read once (`known_texts`)."""
    batch = subject.batch
    predictions = subject.cached(known_texts)
    texts = gone.reshape(-1, gone.shape[-1])
    example = torch.arange(len(texts), device=texts.device) % len(batch)
    keys = keys_of(example, texts, operator)
    last_place = {key: place for place, key in enumerate(keys)}
    unread = [place for key, place in last_place.items() if key not in predictions]

    # read together: texts of about the same length
    lengths = batch.lengths[example[unread]]
    if operator == "delete":
        lengths = lengths - batch.rows(example[unread]).parts_of(texts[unread]).sum(1)
    groups = short_enough(lengths.cpu().numpy() - 2, most=AT_ONCE)
    for group in CLOCK.track(groups, "words removed", "batches"):
        places = [unread[number] for number in group]
        part = batch.rows(example[places])
        part = part.cut(int(part.mask.sum(1).max()))
        words = texts[places][:, : part.ids.shape[1]]
        logits = outputs_without(subject.classifier, part, words, operator).logits
        probability = probabilities(logits, subject.classifier.task)
        predictions.update(zip((keys[place] for place in places), probability, strict=True))
    return torch.stack([predictions[key] for key in keys]).unflatten(0, gone.shape[:-1])


def outputs_without(
    model: Model, batch: Batch, gone: Bool[Tensor, "batch tokens"], operator: str
) -> Outputs:
    """Read the texts with some of their words gone, by an operator that changes the text."""
    if operator == "delete":
        return model(model.reread(deleted(batch, gone)))
    if operator == "mask":
        return model(model.masked(batch, gone))
    inputs = model.inputs(batch)
    words = (model.word_of(batch) >= 0).unsqueeze(-1)
    mean = (inputs * words).sum(1, keepdim=True) / words.sum(1, keepdim=True).clamp(min=1)
    replacement = mean if operator == "mean" else torch.zeros_like(mean)
    parts = batch.parts_of(gone).unsqueeze(-1)
    return model.outputs_from(batch, torch.where(parts, replacement, inputs))


def top_words(
    scores: Float[Tensor, "batch tokens"], content: Bool[Tensor, "batch tokens"], share: float
) -> Bool[Tensor, "batch tokens"]:
    """The highest-scored words, that share of each text's, rounded up.

    Of equal ones the earlier first.
    """
    order = scores.masked_fill(~content, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    rank = order.argsort(dim=-1)
    # rounding of share × n must not add a word
    count = (share * content.sum(-1, keepdim=True).double() - 1e-9).ceil()
    return (rank < count) & content
