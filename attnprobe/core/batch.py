"""What travels through the house: `Batch` in, `Outputs` out.

Probes are given a `attnprobe.core.readout.Readout` as well. Glossary of axis words, used in every
shape annotation of the package:

    batch    examples of one batch
    seq      positions that attention is spread over: tokens, or sentences in a hierarchical model
    pieces   what a pretrained model's tokenizer cuts the words into
    tokens   tokens of the text, where they differ from `seq` (hierarchical models), or of the
             question
    hidden   features of one encoder state
    embed    features of one word vector
    classes  outputs of the classifier, 2 or more (a binary model's single logit s becomes [0, s])
    samples  alternatives for one example: permutations, restarts, erasures

Boolean masks say True = keep. `mask` marks real tokens (markers included, padding not); `content`
marks the positions that attention may be given to: no markers, no padding.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.measures import total_variation


class Task(StrEnum):
    """What the labels mean, and with it how logits become probabilities."""

    SINGLE_LABEL = "single_label"  # exactly one of two or more classes: softmax
    MULTI_LABEL = "multi_label"  # any subset of the labels: one sigmoid each
    SCORE = "score"  # one number z, and two classes, below and above 0: logits are (−z/2, z/2)


class Axis(StrEnum):
    """What the entries of a batch's column belong to.

    Whatever collates, selects, cuts or moves a batch asks a column for its axis and its padding,
    and for nothing else.
    """

    EXAMPLE = "example"  # one entry per example
    TOKENS = "tokens"  # one per token of the text, markers and padding included
    QUESTION = "question"  # one per token of the question
    PIECES = "pieces"  # one per piece of a model's own tokenizer, special tokens included
    CHARACTERS = "characters"  # one per character of the text
    CLASSES = "classes"  # one bool per class; given as the numbers of the classes


PER_EXAMPLE = {"axis": Axis.EXAMPLE}
PER_TOKEN = {"axis": Axis.TOKENS}
PER_QUESTION_TOKEN = {"axis": Axis.QUESTION}
PER_PIECE = {"axis": Axis.PIECES}
PER_CHARACTER = {"axis": Axis.CHARACTERS}
PER_CLASS = {"axis": Axis.CLASSES}


@dataclass
class Batch:
    """One padded batch of texts.

    A new column is one line here: its axis, and what stands at padding (`pad`), unless it is 0.

    Attributes:
        ids: words as numbers of the vocabulary.
        mask: real tokens, markers included.
        content: tokens that attention may be given to.
        labels: class numbers `[batch]`, or 0/1 floats `[batch, classes]` for multi-label tasks.
        example_id: row number within the split.
        sentence: number of each token's sentence, from 0; −1 at markers and padding.
        rationale: tokens that a human or the generator gave as the reason for the label; a row
            without True has none.
        annotators: what each of several people marked. Of person k bit 2k says that there is one,
            and bit 2k + 1 that this token is marked; a row of 0 is not known.
        counterfactual: ids of the same text with its reason changed, so that it is of the next
            class (of two: the other one); a row of 0 has none.
        question: words of the question, for tasks with one.
        question_mask: its real tokens.
        candidates: the classes that this instance may be answered with.
        teacher_attention: the attention of another run, the teacher; 0 outside `content`.
        teacher_probability: the teacher's prediction.
        pieces: what a tokenizer of the model's own cuts the words into, as its ids.
        piece_word: the position in `ids` of each piece's word; −1 of no word, −2 padding.
        piece_kind: 1 for pieces of the second text of a pair, else 0.
        segment: the text of a pair that a token is of, 0 or 1; −1 at markers and padding.
        asked: 1 at the word whose class is queried, where a model gives one to every word.
        characters: the text itself, for a model that reads it again without some words
            (`attnprobe.data.characters`).
        span_start: where each token starts in `characters`; −1 at markers and padding.
        span_end: where it ends.
        text_number: number of the row's text within the split, where a row is a text and one of its
            labels; rows of one text follow each other.
        extra: the data's own numbers per word (`data.per_word`) by name; NaN at markers, padding
            and texts without them.
    """

    ids: Int[Tensor, "batch tokens"] = field(metadata=PER_TOKEN)
    mask: Bool[Tensor, "batch tokens"] = field(metadata=PER_TOKEN)
    content: Bool[Tensor, "batch tokens"] = field(metadata=PER_TOKEN)
    labels: Tensor = field(metadata=PER_EXAMPLE)
    example_id: Int[Tensor, "batch"] = field(metadata=PER_EXAMPLE)
    sentence: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata=PER_TOKEN | {"pad": -1}
    )
    rationale: Bool[Tensor, "batch tokens"] | None = field(default=None, metadata=PER_TOKEN)
    annotators: Int[Tensor, "batch tokens"] | None = field(default=None, metadata=PER_TOKEN)
    counterfactual: Int[Tensor, "batch tokens"] | None = field(default=None, metadata=PER_TOKEN)
    question: Int[Tensor, "batch question"] | None = field(
        default=None, metadata=PER_QUESTION_TOKEN
    )
    question_mask: Bool[Tensor, "batch question"] | None = field(
        default=None, metadata=PER_QUESTION_TOKEN
    )
    candidates: Bool[Tensor, "batch classes"] | None = field(default=None, metadata=PER_CLASS)
    teacher_attention: Float[Tensor, "batch tokens"] | None = field(
        default=None, metadata=PER_TOKEN
    )
    teacher_probability: Float[Tensor, "batch classes"] | None = field(
        default=None, metadata=PER_EXAMPLE
    )
    pieces: Int[Tensor, "batch pieces"] | None = field(default=None, metadata=PER_PIECE)
    piece_word: Int[Tensor, "batch pieces"] | None = field(
        default=None, metadata=PER_PIECE | {"pad": -2}
    )
    piece_kind: Int[Tensor, "batch pieces"] | None = field(default=None, metadata=PER_PIECE)
    segment: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata=PER_TOKEN | {"pad": -1}
    )
    asked: Float[Tensor, "batch tokens"] | None = field(default=None, metadata=PER_TOKEN)
    characters: Int[Tensor, "batch characters"] | None = field(
        default=None, metadata=PER_CHARACTER | {"pad": -1}
    )
    span_start: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata=PER_TOKEN | {"pad": -1}
    )
    span_end: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata=PER_TOKEN | {"pad": -1}
    )
    text_number: Int[Tensor, "batch"] | None = field(default=None, metadata=PER_EXAMPLE)
    extra: dict[str, Float[Tensor, "batch tokens"]] = field(
        default_factory=dict, metadata=PER_TOKEN | {"pad": torch.nan}
    )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> Int[Tensor, "batch"]:
        """How much of each text a model reads, markers included: its pieces, or its tokens."""
        return self.mask.sum(1) if self.piece_word is None else (self.piece_word != -2).sum(1)

    def changed(self, change: Callable[[Axis, Tensor], Tensor]) -> "Batch":
        """The same batch with every column changed, each given with its axis."""
        columns: dict[str, Any] = {}
        for declaration in fields(self):
            value = getattr(self, declaration.name)
            axis = declaration.metadata["axis"]
            if isinstance(value, dict):
                columns[declaration.name] = {
                    name: change(axis, tensor) for name, tensor in value.items()
                }
            elif value is not None:
                columns[declaration.name] = change(axis, value)
        return replace(self, **columns)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch on another device."""
        return self.changed(lambda _, tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory (called by the data loader where a GPU is used)."""
        return self.changed(lambda _, tensor: tensor.pin_memory())

    def rows(self, chosen: slice | Int[Tensor, "chosen"] | Bool[Tensor, "batch"]) -> "Batch":
        """Some of the examples, in this order, with all their padding.

        Args:
            chosen: their rows; one may be named several times.
        """
        return self.changed(lambda _, tensor: tensor[chosen])

    def distinct_texts(self) -> tuple["Batch", Int[Tensor, "batch"]]:
        """The texts without those that are the same as the one before.

        Returns:
            The first row of each text, with all columns; and the place of each row's text in it.
        """
        is_new = torch.ones_like(self.ids[:, 0], dtype=torch.bool)
        is_new[1:] = (self.ids[1:] != self.ids[:-1]).any(1)
        for column in (self.sentence, self.pieces, self.piece_word):
            if column is not None:
                is_new[1:] |= (column[1:] != column[:-1]).any(1)
        return self.rows(is_new), is_new.cumsum(0) - 1

    def without(self, example: Int[Tensor, "texts"], position: Int[Tensor, "texts"]) -> "Batch":
        """Some texts, each without one of its tokens.

        Args:
            example: rows of the texts; one may be named several times.
            position: the token that each loses.
        """
        place = torch.arange(self.ids.shape[1] - 1, device=self.ids.device)
        source = place + (place >= position.unsqueeze(1)).long()

        def remove_token(axis: Axis, tensor: Tensor) -> Tensor:
            return tensor.gather(1, source) if axis is Axis.TOKENS else tensor

        texts = self.rows(example)
        # what a teacher said of the whole text is not what it would say of a shortened one
        shorter = replace(texts, teacher_attention=None, teacher_probability=None)
        is_removed = torch.zeros_like(texts.mask).scatter(1, position.unsqueeze(1), True)
        return shorter.changed(remove_token).with_pieces_of(texts, is_removed)

    def with_pieces_of(self, texts: "Batch", gone: Bool[Tensor, "batch tokens"]) -> "Batch":
        """This batch, which lacks some tokens of `texts`, without the pieces of those.

        The other pieces move up, and padding fills the end.

        Args:
            texts: the batch that still has them.
            gone: its tokens that this one lacks.
        """
        if texts.pieces is None or texts.piece_word is None or texts.piece_kind is None:
            return self
        word = texts.piece_word
        is_gone = texts.parts_of(gone)
        order = is_gone.long().argsort(dim=1, stable=True)
        is_end = is_gone.gather(1, order)
        gone_before = gone.long().cumsum(-1).gather(1, word.clamp(min=0))
        moved = word - torch.where(word >= 0, gone_before, 0)
        return replace(
            self,
            pieces=texts.pieces.gather(1, order).masked_fill(is_end, 0),
            piece_word=moved.gather(1, order).masked_fill(is_end, -2),
            piece_kind=texts.piece_kind.gather(1, order).masked_fill(is_end, 0),
        )

    def parts_of(self, words: Bool[Tensor, "batch tokens"]) -> Bool[Tensor, "batch parts"]:
        """Which parts, tokens or pieces, are of these words."""
        if self.piece_word is None:
            return words
        return words.gather(1, self.piece_word.clamp(min=0)) & (self.piece_word >= 0)

    def cut(self, width: int) -> "Batch":
        """The first tokens of every text, and its pieces without what is padding in all texts.

        Args:
            width: how many tokens.
        """
        widths = {Axis.TOKENS: width, Axis.PIECES: int(self.lengths.max())}
        return self.changed(
            lambda axis, tensor: tensor[:, : widths[axis]] if axis in widths else tensor
        )


@dataclass
class Outputs:
    """What one forward pass yields.

    Attributes:
        logits: of the classes.
        attention: sums to 1 over `content`, and is exactly 0 elsewhere.
        scores: the attention's pre-softmax values, −inf outside `content`.
        hidden: the encoder's states.
        content: positions that attention may be given to.
        query: the question's last state.
        word_attention: of hierarchical models: sums to 1 over the words of each sentence, and is 0
            elsewhere.
        off_text: share of the rows behind `attention` that is on no word of the text (special
            tokens, the other text of a pair), 0 to 1; None: all of it is on words.
        piece_attention: of models that read pieces: the mean of those rows, which sums to 1 over
            all pieces, special tokens included.
        unseen: words of the text that none of those rows may see, by a mask of the network; they
            are not in `content`. None: such a thing is not known of this model.
    """

    logits: Float[Tensor, "batch classes"]
    attention: Float[Tensor, "batch seq"]
    scores: Float[Tensor, "batch seq"]
    hidden: Float[Tensor, "batch seq hidden"]
    content: Bool[Tensor, "batch seq"]
    query: Float[Tensor, "batch query"] | None = None
    word_attention: Float[Tensor, "batch tokens"] | None = None
    off_text: Float[Tensor, "batch"] | None = None
    piece_attention: Float[Tensor, "batch pieces"] | None = None
    unseen: Bool[Tensor, "batch seq"] | None = None

    @property
    def text(self) -> Bool[Tensor, "batch seq"]:
        """Positions of the text: those of `content`, and those that are not seen."""
        return self.content if self.unseen is None else self.content | self.unseen

    def rows(self, chosen: slice | Int[Tensor, "chosen"], width: int | None = None) -> "Outputs":
        """Those of some of the examples.

        Args:
            chosen: their rows.
            width: how many positions; None: all, with their padding.
        """
        columns = {}
        for name, value in vars(self).items():
            if value is None:
                continue
            columns[name] = value[chosen]
            if name in ("attention", "scores", "hidden", "content", "unseen"):
                columns[name] = columns[name][:, :width]
        return replace(self, **columns)

    @classmethod
    def joined(cls, parts: "Sequence[Outputs]") -> "Outputs":
        """Those of successive rows of one batch."""
        if len(parts) == 1:
            return parts[0]
        columns = {}
        for name, value in vars(parts[0]).items():
            if value is not None:
                columns[name] = torch.cat([getattr(part, name) for part in parts])
        return cls(**columns)


def probabilities(
    logits: Float[Tensor, "*any classes"], task: Task
) -> Float[Tensor, "*any classes"]:
    """Class probabilities (softmax), or for multi-label tasks one probability per label (sigmoid).

    A score z has −z and z in their place, so that the distance of two predictions is |Δz| and the
    decision is the larger one.
    """
    if task is Task.SCORE:
        return 2 * logits
    return logits.sigmoid() if task is Task.MULTI_LABEL else logits.softmax(-1)


def prediction_distance(
    p: Float[Tensor, "*p classes"], q: Float[Tensor, "*q classes"], task: Task
) -> Float[Tensor, "*any"]:
    """How far two predictions are apart, 0 to 1.

    Total variation distance; for multi-label tasks the mean over the labels of |p − q|, which is
    each label's own total variation; of scores |Δz|, 0 or more.
    """
    return (p - q).abs().mean(-1) if task is Task.MULTI_LABEL else total_variation(p, q)
