"""The attention itself, and what an importance must beat.

That is orders that read no word, and counts of the training texts.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import log_odds_ratios
from attnprobe.data.module import TextDataModule
from attnprobe.data.vocabulary import document_frequency
from attnprobe.exact.erasure import decision_margin
from attnprobe.importance.base import Importance, Scores, Subject


class Attention(Importance):
    """α_t, 0 to 1."""

    name = "attention"
    title = "attention"
    colour = "#E69F00"

    def scores(self, subject: Subject) -> Scores:
        """The weights; below 0 where they stand upside down."""
        return -subject.readout.attention if self.signed else subject.readout.attention


class Ascending(Attention):
    """The attention upside down: what an importance must beat by far."""

    name = "ascending"
    title = "lowest attention"
    colour = "#56B4E9"
    signed = True


class Position(Importance):
    """1 / (number of the position from 1), 0 to 1: the first item first."""

    name = "position"
    title = "position, first first"
    colour = "#777777"
    shares = True

    def scores(self, subject: Subject) -> Scores:
        """0 to 1, 0 outside content."""
        content = subject.outputs.content
        return (1 / content.long().cumsum(-1).clamp(min=1).double()).masked_fill(~content, 0)


class Random(Importance):
    """Uniform numbers that belong to (seed, example): what an order without meaning gets."""

    name = "random"
    title = "random"
    colour = "#222222"
    shares = drawn = True

    def scores(self, subject: Subject) -> Scores:
        """0 to 1."""
        draws = Draws(subject.seed, self.name)
        return draws.uniform(1, subject.readout.content, subject.readout.example_id)[0]


class Contribution(Importance):
    """α_t (z_t[decision] − z_t[runner-up]), z the position logits, signed.

    With two classes this is the order of the smallest flipping set.
    """

    name = "contribution"
    title = "contribution"
    colour = "#999933"
    signed = True

    def is_defined(self, subject: Subject) -> bool:
        """For a linear decoder."""
        return subject.readout.position_logits is not None

    def scores(self, subject: Subject) -> Scores:
        """Signed, in units of the logit."""
        return subject.readout.attention * decision_margin(subject.readout)


@dataclass(frozen=True)
class TrainingWords(Importance):
    """An importance that is a table of the vocabulary's words.

    Filled from the training texts before anything is trained.
    """

    of_words: ClassVar[bool] = True
    _table: list[Tensor] = field(default_factory=list, init=False, repr=False, compare=False)

    @abstractmethod
    def table(self, data: TextDataModule) -> Float[np.ndarray, "vocabulary columns"]:
        """The score of each word of the vocabulary, in one column, or in one per class."""

    def prepare(self, data: TextDataModule, split: str) -> None:
        """Fill the table."""
        if "train" not in data.splits:
            raise UserError(
                f"importance {self.name} needs training texts: expected "
                f"'data.path={{train: FILE, test: FILE}}'"
            )
        self._table[:] = [torch.from_numpy(self.table(data))]

    def prepare_texts(self, texts: object, tokens: object) -> None:
        """Refuse: the training texts are gone."""
        raise UserError(
            f"importance {self.name} counts the training texts, which a loaded run does not hold: "
            f"it is known for a run's own test texts, as its tables have it"
        )

    def scores(self, subject: Subject) -> Scores:
        """The words' scores; those for the predicted class where each class has its own."""
        ids = subject.batch.ids
        table = self._table[0].to(ids.device)
        if table.shape[1] == 1:
            return table[ids, 0]
        predicted_class = subject.outputs.logits.argmax(-1, keepdim=True)
        return table[ids, predicted_class]


class Idf(TrainingWords):
    """Inverse document frequency in the training texts, ln((1 + N) / (1 + n)) + 1, 1 or more.

    n of N texts have the word.
    """

    name = "idf"
    title = "rarity (idf)"
    colour = "#AAAA00"
    shares = True

    def table(self, data: TextDataModule) -> Float[np.ndarray, "vocabulary columns"]:
        """One column."""
        train = data.splits["train"]
        words = train.vocabulary_id[train.words.flat]
        counts = document_frequency(words, train.words.offsets, len(data.vocabulary))
        return (np.log((1 + len(train)) / (1 + counts)) + 1)[:, None]


class LogOdds(TrainingWords):
    """Log-odds ratio of the word for the predicted class against all others, signed.

    ln of the odds that a training text of the class has the word, over the odds that one of another
    class has it, each count with ½ added (Haldane 1956). A lexicon as Jain & Wallace's (2019,
    section 4) last model attends by.
    """

    name = "log_odds"
    title = "log-odds of the word"
    colour = "#44BB99"
    signed = True

    def table(self, data: TextDataModule) -> Float[np.ndarray, "vocabulary columns"]:
        """One column per class."""
        return log_odds_ratios(data.splits["train"], len(data.vocabulary), len(data.classes))


@cache
def is_function_word(
    words: tuple[str, ...], function_words: tuple[str, ...] | None = None
) -> Bool[Tensor, "vocabulary"]:
    """Whether each word is a function word or holds neither a letter nor a digit.

    Args:
        words: the vocabulary in the order of its ids.
        function_words: lower case; None: spaCy's English stop words (326, "not" and "n't" among
            them).
    """
    from spacy.lang.en.stop_words import STOP_WORDS

    excluded = STOP_WORDS if function_words is None else set(function_words)
    marked = [
        word.lower() in excluded or not any(letter.isalnum() for letter in word) for word in words
    ]
    return torch.tensor(marked, dtype=torch.bool)
