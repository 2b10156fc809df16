"""What travels through the house: `Batch` in, `Outputs` out (and `attnprobe.core.readout.Readout`,
which probes are given).

Glossary of axis words, used in every shape annotation of the package:

    batch    examples of one batch seq      positions that attention is spread over: tokens, or
    sentences in a hierarchical model pieces   what a pretrained model's tokenizer cuts the words
    into tokens   tokens of the text, where they differ from `seq` (hierarchical models) or belong
    to the question hidden   features of one encoder state embed    features of one word vector
    classes  outputs of the classifier; always 2 or more (a binary model's single logit s becomes
    [0, s]) samples  alternatives for one example: permutations, restarts, erasures

Boolean masks say True = keep. `mask` marks real tokens (markers included, padding not); `content`
marks the positions that attention may be given to: no markers, no padding."""

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
    """What the entries of a batch's column belong to. Whatever collates, selects, cuts or moves a
    batch asks a column for its axis and its padding, and for nothing else."""

    EXAMPLE = "example"  # one entry per example
    TOKENS = "tokens"  # one per token of the text, markers and padding included
    QUESTION = "question"  # one per token of the question
    PIECES = "pieces"  # one per piece of a pretrained model's tokenizer, its special tokens and padding included
    CLASSES = "classes"  # one bool per class; given as the numbers of the classes


@dataclass
class Batch:
    """One padded batch of texts. A new column is one line here: its axis, and what stands at
    markers and padding (`pad`), unless it is 0.

    `labels` holds class numbers `[batch]`, or 0/1 floats `[batch, classes]` for multi-label tasks.
    `example_id` is the row number within the split. `sentence` numbers the sentence of every token
    from 0 (−1 on markers and padding). `rationale` marks the tokens that a human or the generator
    gave as the reason for the label (no True in a row: none was given). `annotators` holds what
    each of several people marked (of person k bit 2k says that there is one, and bit 2k + 1 that
    this token is marked; a row of 0: not known). `counterfactual` holds the ids of the same text
    with its reason changed, so that it is of the next class (of two: the other one); a row of 0:
    none was given. `question`, `question_mask` and `candidates` (which classes this instance may be
    answered with) are there for tasks with a question. `teacher_attention` (0 outside `content`)
    and `teacher_probability` are what another run, the teacher, says about these texts, where one
    is named. `pieces`, their words (`piece_word`: a position of `ids`, −1 of no word, −2 padding)
    and `piece_kind` (1: of the second text of a pair) are there for models with a tokenizer of
    their own. `segment` says of which text of a pair a token is, 0 or 1 (−1 at markers and
    padding). `asked` is 1 at the word whose class is asked for, where a model gives one to every
    word. `extra` holds the data's own numbers per word (`data.per_word`) by name, NaN at markers,
    padding and texts without them."""

    ids: Int[Tensor, "batch tokens"] = field(metadata={"axis": Axis.TOKENS})
    mask: Bool[Tensor, "batch tokens"] = field(metadata={"axis": Axis.TOKENS})
    content: Bool[Tensor, "batch tokens"] = field(metadata={"axis": Axis.TOKENS})
    labels: Tensor = field(metadata={"axis": Axis.EXAMPLE})
    example_id: Int[Tensor, "batch"] = field(metadata={"axis": Axis.EXAMPLE})
    sentence: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata={"axis": Axis.TOKENS, "pad": -1}
    )
    rationale: Bool[Tensor, "batch tokens"] | None = field(
        default=None, metadata={"axis": Axis.TOKENS}
    )
    annotators: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata={"axis": Axis.TOKENS}
    )
    counterfactual: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata={"axis": Axis.TOKENS}
    )
    question: Int[Tensor, "batch question"] | None = field(
        default=None, metadata={"axis": Axis.QUESTION}
    )
    question_mask: Bool[Tensor, "batch question"] | None = field(
        default=None, metadata={"axis": Axis.QUESTION}
    )
    candidates: Bool[Tensor, "batch classes"] | None = field(
        default=None, metadata={"axis": Axis.CLASSES}
    )
    teacher_attention: Float[Tensor, "batch tokens"] | None = field(
        default=None, metadata={"axis": Axis.TOKENS}
    )
    teacher_probability: Float[Tensor, "batch classes"] | None = field(
        default=None, metadata={"axis": Axis.EXAMPLE}
    )
    pieces: Int[Tensor, "batch pieces"] | None = field(default=None, metadata={"axis": Axis.PIECES})
    piece_word: Int[Tensor, "batch pieces"] | None = field(
        default=None, metadata={"axis": Axis.PIECES, "pad": -2}
    )
    piece_kind: Int[Tensor, "batch pieces"] | None = field(
        default=None, metadata={"axis": Axis.PIECES}
    )
    segment: Int[Tensor, "batch tokens"] | None = field(
        default=None, metadata={"axis": Axis.TOKENS, "pad": -1}
    )
    asked: Float[Tensor, "batch tokens"] | None = field(
        default=None, metadata={"axis": Axis.TOKENS}
    )
    extra: dict[str, Float[Tensor, "batch tokens"]] = field(
        default_factory=dict, metadata={"axis": Axis.TOKENS, "pad": torch.nan}
    )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> Int[Tensor, "batch"]:
        """How much of each text a model reads, markers included: its pieces, or its tokens."""
        return self.mask.sum(1) if self.piece_word is None else (self.piece_word != -2).sum(1)

    def changed(self, change: Callable[[Axis, Tensor], Tensor]) -> "Batch":
        """The same batch with every column changed, each given with its axis."""
        parts: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            axis = one.metadata["axis"]
            if isinstance(value, dict):
                parts[one.name] = {name: change(axis, tensor) for name, tensor in value.items()}
            elif value is not None:
                parts[one.name] = change(axis, value)
        return replace(self, **parts)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Batch":
        """The same batch on another device."""
        return self.changed(lambda _, tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory (called by the data loader where a GPU is used)."""
        return self.changed(lambda _, tensor: tensor.pin_memory())

    def rows(self, chosen: slice | Int[Tensor, "chosen"] | Bool[Tensor, "batch"]) -> "Batch":
        """Some of the examples, in this order, with all their padding; a row may be named several
        times."""
        return self.changed(lambda _, tensor: tensor[chosen])

    def without(self, example: Int[Tensor, "texts"], position: Int[Tensor, "texts"]) -> "Batch":
        """The texts of `example`, each without its token at `position`; a text may be named several
        times."""
        place = torch.arange(self.ids.shape[1] - 1, device=self.ids.device)
        source = place + (place >= position.unsqueeze(1)).long()
        # what a teacher said of the whole text is not what it would say of a shortened one
        alone = replace(self, teacher_attention=None, teacher_probability=None).rows(example)
        return alone.changed(
            lambda axis, column: column.gather(1, source) if axis is Axis.TOKENS else column
        )

    def cut(self, width: int) -> "Batch":
        """The first `width` tokens of every text, and its pieces: without what is padding in all of
        these examples."""
        widths = {Axis.TOKENS: width, Axis.PIECES: int(self.lengths.max())}
        return self.changed(
            lambda axis, tensor: tensor[:, : widths[axis]] if axis in widths else tensor
        )


@dataclass
class Outputs:
    """What one forward pass yields.

    `scores` are the attention's pre-softmax values, −inf outside `content`; `attention` sums to 1
    over `content` and is exactly 0 elsewhere. `query` is the question's last state.
    `word_attention`, of hierarchical models, sums to 1 over the words of each sentence, and is 0
    elsewhere. `off_text` is the share of the rows behind `attention` that is on no word of the text
    (special tokens, the other text of a pair), 0 to 1; None: all of it is on words.
    `piece_attention`, of models that read pieces, is the mean of those rows: it sums to 1 over all
    pieces, special tokens included."""

    logits: Float[Tensor, "batch classes"]
    attention: Float[Tensor, "batch seq"]
    scores: Float[Tensor, "batch seq"]
    hidden: Float[Tensor, "batch seq hidden"]
    content: Bool[Tensor, "batch seq"]
    query: Float[Tensor, "batch query"] | None = None
    word_attention: Float[Tensor, "batch tokens"] | None = None
    off_text: Float[Tensor, "batch"] | None = None
    piece_attention: Float[Tensor, "batch pieces"] | None = None

    def rows(self, chosen: slice | Int[Tensor, "chosen"], width: int | None = None) -> "Outputs":
        """Those of some of the examples, with all their padding, or with the first `width`
        positions."""
        parts = {}
        for name, value in vars(self).items():
            if value is not None:
                per_position = name in ("attention", "scores", "hidden", "content")
                parts[name] = value[chosen][:, :width] if per_position else value[chosen]
        return replace(self, **parts)

    @classmethod
    def joined(cls, parts: "Sequence[Outputs]") -> "Outputs":
        """Those of successive rows of one batch."""
        if len(parts) == 1:
            return parts[0]
        there = [name for name, value in vars(parts[0]).items() if value is not None]
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in there})


def probabilities(
    logits: Float[Tensor, "*any classes"], task: Task
) -> Float[Tensor, "*any classes"]:
    """Class probabilities (softmax), or for multi-label tasks one probability per label (sigmoid).
    Of a score z what stands in their place: −z and z, so that the distance of two predictions is
    |Δz| and the decision is the larger one."""
    if task is Task.SCORE:
        return 2 * logits
    return logits.sigmoid() if task is Task.MULTI_LABEL else logits.softmax(-1)


def prediction_distance(
    p: Float[Tensor, "*p classes"], q: Float[Tensor, "*q classes"], task: Task
) -> Float[Tensor, "*any"]:
    """How far two predictions are apart, 0 to 1: total variation distance; for multi-label tasks
    the mean over the labels of |p − q|, which is each label's own total variation; of scores |Δz|,
    0 or more."""
    return (p - q).abs().mean(-1) if task is Task.MULTI_LABEL else total_variation(p, q)
