"""A construction: how texts are written, what their words do, and where the attention lies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.oom_retry import Halving
from attnprobe.core.readout import Readout
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.models.base import Model

WORDS = 96
"""Size of the vocabulary: 0 to 3 are no words, and from `CUE` on words may do something."""
PLAIN = 60
CUE = 4 + PLAIN

Words = Int[np.ndarray, " words"]
Weights = Float[np.ndarray, " words"]
Score = Callable[[Int[Tensor, "texts tokens"]], Float[Tensor, "texts classes"]]
"""Word numbers, markers and padding included → logits."""


@dataclass(frozen=True)
class Text:
    """A text, with the words that decide it.

    Attributes:
        words: their numbers.
        decides: the words that decide; none where the text is known by what it lacks.
        cues: places of the words that have a role, in the order that its construction knows.
    """

    words: Words
    decides: Bool[np.ndarray, " words"]
    cues: tuple[int, ...] = ()

    @property
    def rest(self) -> list[int]:
        """Places of the words without a role."""
        return [place for place in range(len(self.words)) if place not in self.cues]


Write = Callable[[np.random.Generator, int], Text]
"""The text of a label."""
Attend = Callable[[np.random.Generator, Text], Weights]
"""The weights on the words of a text, which sum to 1."""


@dataclass(frozen=True)
class Construction:
    """A model whose answer is known.

    Attributes:
        name: as the page says it.
        source: where it was first tried, such as `design 8` or `review d`.
        write: writes a text.
        score: what its words come to.
        attend: where the attention lies.
        shares: of the labels among the texts.
        texts: how many.
        runs: models that are asked together; each draws its attention anew.
        expected: the answer that would be right, or how it is known to fail.
        paper: the number that the design of the measure gave, where it has one.
        before: what the review reports of the measure before, likewise.
        asked_again: the answer of the measure before on these very texts and weights.
    """

    name: str
    source: str
    write: Write
    score: Score
    attend: Attend
    shares: tuple[float, ...] = (0.5, 0.5)
    texts: int = 100
    runs: int = 1
    expected: str = ""
    paper: str = ""
    before: str = ""
    asked_again: str = ""

    def labels(self) -> list[int]:
        """The label of each text, of the smaller class as many as its share says."""
        smaller = [round(share * self.texts) for share in self.shares[1:]]
        counts = [self.texts - sum(smaller), *smaller]
        return np.repeat(np.arange(len(counts)), counts).tolist()

    def written(self, seed: int) -> list[Text]:
        """The texts of a draw, in random order."""
        draw = np.random.default_rng((seed, 0))
        labels = draw.permutation(self.labels()).tolist()
        return [self.write(draw, label) for label in labels]

    def model(self, texts: Sequence[Text], seed: int, run: int = 0) -> "HandBuilt":
        """One run's hand-built model, with its attention on these texts."""
        return HandBuilt(self.score, self.attention(texts, seed, run), len(self.shares))

    def attention(self, texts: Sequence[Text], seed: int, run: int = 0) -> list[Weights]:
        """One run's attention on these texts."""
        draw = np.random.default_rng((seed, 1 + run))
        return [self.attend(draw, text) for text in texts]

    def with_texts(self, texts: int) -> "Construction":
        """The same with another number of texts."""
        return replace(self, texts=texts)


class WithTable(Model):
    """A model whose attention is a table: given for each text, whatever its words become."""

    task = Task.SINGLE_LABEL

    def __init__(self, weights: Sequence[Weights], classes: int) -> None:
        super().__init__()
        self.halving = Halving()
        self.classes = classes
        self.attend(weights)

    def attend(self, weights: Sequence[Weights]) -> None:
        """Take these weights for the attention on the words of each text."""
        self.lengths = [len(text_weights) for text_weights in weights]
        tokens = max(self.lengths) + 2  # with the markers at both ends
        self.weights = torch.zeros(len(weights), tokens, dtype=torch.float64)
        for row, text_weights in enumerate(weights):
            words = slice(1, len(text_weights) + 1)
            self.weights[row, words] = torch.from_numpy(text_weights)

    def weights_of(self, text: int) -> Weights:
        """The attention on the words of a text."""
        return self.weights[text, 1 : self.lengths[text] + 1].numpy()

    def attention_of(self, batch: Batch) -> Float[Tensor, "batch seq"]:
        """The attention of the texts with these numbers."""
        return self.weights[batch.example_id, : batch.ids.shape[1]]

    def inputs(self, batch: Batch) -> Tensor:
        """Refused: nothing here is differentiated."""
        raise NotImplementedError("a constructed model is not differentiated by its word vectors")

    def outputs_from(
        self, batch: Batch, inputs: Tensor | None = None, attention: Tensor | None = None
    ) -> Outputs:
        """As `forward`; nothing can be replaced."""
        if inputs is not None or attention is not None:
            raise NotImplementedError("a constructed model has nothing that could be replaced")
        return self(batch)


class HandBuilt(WithTable):
    """A model without an encoder: its score is a function of the words.

    Other weights decode to as much of the logits as they have in common with its own, so that they
    are no ornament, and what is asked of the readout has an answer.
    """

    def __init__(self, score: Score, weights: Sequence[Weights], classes: int = 2) -> None:
        super().__init__(weights, classes)
        self.score = score

    def forward(self, batch: Batch) -> Outputs:
        """The score of the words, and the table's attention."""
        attention = self.attention_of(batch)
        return Outputs(
            logits=self.score(batch.ids),
            attention=attention,
            scores=attention.log(),
            hidden=attention.unsqueeze(-1),
            content=batch.content,
        )

    def readout(self, batch: Batch, outputs: Outputs) -> Readout:
        """Other weights have as much of the logits as they have in common with the attention."""
        logits = outputs.logits.double()

        def decode(weights: Float[Tensor, "*samples batch seq"]) -> Tensor:
            common = torch.minimum(weights, outputs.attention).sum(-1, keepdim=True)
            return common * logits

        return Readout(outputs.attention, batch.content, batch.example_id, self.task, decode=decode)


def split_of(texts: Sequence[Text]) -> TextSplit:
    """Texts as a split of a data set."""
    numbers = np.arange(len(texts))
    words = Ragged.of([text.words.astype(np.int32) for text in texts], np.int32)
    columns = {"labels": np.zeros(len(texts), np.int64)}
    return TextSplit(numbers, words, np.arange(WORDS), columns, [], ["0", "1"])


def mass(texts: Sequence[Text], weights: Sequence[Weights]) -> float:
    """The weight on the words that decide, beyond chance, in the texts that have some: 1 is all."""
    excess = 0.0
    room = 0.0
    for text, text_weights in zip(texts, weights, strict=True):
        if text.decides.any():
            chance = text.decides.mean()
            excess += text_weights[text.decides].sum() - chance
            room += 1 - chance
    return excess / room if room else float("nan")


# Writing texts.


def text_with(
    draw: np.random.Generator,
    length: int,
    words: dict[int, int],
    decides: Sequence[int],
) -> Text:
    """Words that do nothing, but for some.

    Args:
        draw: random numbers.
        length: of the text, in words.
        words: place → word, in the order of `Text.cues`.
        decides: the places that decide.
    """
    numbers = draw.integers(4, CUE, length)
    for place, word in words.items():
        numbers[place] = word
    marks = np.zeros(length, bool)
    marks[list(decides)] = True
    return Text(numbers, marks, tuple(words))


# Scores.


def linear(votes: dict[int, float], bias: float = 0.0) -> Score:
    """Two classes; the second one's logit is the sum of the words' votes."""
    table = torch.zeros(WORDS, dtype=torch.float64)
    for word, vote in votes.items():
        table[word] = vote

    def score(ids: Int[Tensor, "texts tokens"]) -> Float[Tensor, "texts classes"]:
        return two_classes(table[ids].sum(-1) + bias)

    return score


def two_classes(logit: Float[Tensor, " texts"]) -> Float[Tensor, "texts two"]:
    """Logits of two classes from that of the second."""
    return torch.stack([torch.zeros_like(logit), logit], -1)


# Attentions.


def spread(length: int, places: Sequence[int], weight: float) -> Weights:
    """Even weights on some places, and on all others.

    Args:
        length: of the text.
        places: of the words that share `weight`.
        weight: theirs together, 0 to 1; the other words share the rest.
    """
    rest = np.setdiff1d(np.arange(length), places)
    weights = np.zeros(length)
    weights[list(places)] = weight / len(places)
    weights[rest] = (1 - weight) / max(1, len(rest))
    return weights / weights.sum()


def on_cues(*roles: int, weight: float = 0.95) -> Attend:
    """On the words with these roles (all where none is named)."""

    def attend(draw: np.random.Generator, text: Text) -> Weights:
        places = [text.cues[role] for role in roles] or list(text.cues)
        return spread(len(text.words), places, weight)

    return attend


def on_places(*places: int, weight: float = 0.95) -> Attend:
    """On the words at these places, whatever they are; negative ones count from the end."""

    def attend(draw: np.random.Generator, text: Text) -> Weights:
        length = len(text.words)
        return spread(length, [place % length for place in places], weight)

    return attend


def beside_cues(first: int, weight: float = 0.95) -> Attend:
    """On the first words of a text, but for those with a role."""

    def attend(draw: np.random.Generator, text: Text) -> Weights:
        places = [place for place in text.rest if place < first]
        return spread(len(text.words), places, weight)

    return attend


def on_rest(weight: float = 0.95) -> Attend:
    """On all words without a role."""

    def attend(draw: np.random.Generator, text: Text) -> Weights:
        return spread(len(text.words), text.rest, weight)

    return attend


def around_cues(weight: float = 0.95) -> Attend:
    """On the neighbours of the words with a role, and never on these."""

    def attend(draw: np.random.Generator, text: Text) -> Weights:
        length = len(text.words)
        before = {place - 1 for place in text.cues}
        after = {place + 1 for place in text.cues}
        neighbours = (before | after) & set(text.rest)
        return spread(length, sorted(neighbours), weight)

    return attend


def on_most_common(weight: float = 0.95) -> Attend:
    """On the first of the words with the smallest number, as a stop word is."""

    def attend(draw: np.random.Generator, text: Text) -> Weights:
        place = int(text.words.argmin())
        return spread(len(text.words), [place], weight)

    return attend


def sometimes(share: float, right: Attend, weight: float = 0.95) -> Attend:
    """In this share of the texts as `right`, in the others on a random word without a role."""

    def attend(draw: np.random.Generator, text: Text) -> Weights:
        if draw.random() < share:
            return right(draw, text)
        place = int(draw.choice(text.rest))
        return spread(len(text.words), [place], weight)

    return attend
