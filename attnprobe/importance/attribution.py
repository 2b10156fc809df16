"""captum's methods, and others of their kind, asked of any model: one number of its prediction as a
function of its inputs.

The number is a logit, or the difference of two. Features are the text's words: replaced as a whole
by a baseline vector, or differentiated at their vectors and added up over the vectors' dimensions.
Markers and padding stay as they are."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.core.batch import Batch, Task
from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import Count, listed, nearest
from attnprobe.data.module import TextDataModule
from attnprobe.importance.base import Importance, Scores, Subject
from attnprobe.models.base import Model

PREDICTED = "predicted"
CONTRAST = "contrast"
BASELINES = {"zeros": "the zero vector", "mean": "the mean vector of the text's words"}
AT_ONCE = 1 << 16
"""Tokens that a small model reads at a time, about."""
SMALL = 2_000_000
"""Parameters, embeddings not among them, above which a model reads fewer at a time: what a
transformer keeps of a token for the way back grows with them. Of 65,536 tokens MiniLM, which has 11
million, kept 13 GB."""


@dataclass(frozen=True, eq=False)
class Explained:
    """One number per text, as a function of the vectors that the model reads.

    Attributes:
        inputs: the texts' own vectors.
        baseline: the same with every word replaced.
        classes: the class whose logit is meant, and the one whose logit is subtracted (−1: none),
            per text.
    """

    model: Model
    batch: Batch
    inputs: Float[Tensor, "batch parts embed"]
    baseline: Float[Tensor, "batch parts embed"]
    classes: Int[Tensor, "batch 2"]

    def __call__(
        self, inputs: Float[Tensor, "rows parts embed"], text: Int[Tensor, "rows"] | None = None
    ) -> Float[Tensor, "rows"]:
        """The number for other vectors of the texts of these numbers, of which one may be there
        many times; None: of all in order."""
        batch = self.batch if text is None else self.batch.rows(text)
        batch = batch.cut(int(batch.mask.sum(-1).max()))  # padding that none of these texts needs
        parts = self.model.word_of(batch).shape[1]
        return self.number_of(self.model.outputs_from(batch, inputs[:, :parts]).logits, text)

    def number_of(
        self, logits: Float[Tensor, "rows classes"], text: Int[Tensor, "rows"] | None = None
    ) -> Float[Tensor, "rows"]:
        """The number, from the logits of the texts of these numbers; None: of all in order."""
        classes = self.classes if text is None else self.classes[text]
        of_each = logits.gather(-1, classes.clamp(min=0))
        return torch.where(classes[:, 1] < 0, of_each[:, 0], of_each[:, 0] - of_each[:, 1])

    def attribute(
        self, method: Callable[..., Any], *given: Tensor, **settings: Any
    ) -> Float[Tensor, "batch parts embed"]:
        """What one of captum's methods gives to each number of the texts' vectors."""
        texts = torch.arange(len(self.inputs), device=self.inputs.device)
        inputs = self.inputs.clone().requires_grad_()
        with torch.enable_grad():
            found = method(self).attribute(
                inputs, *given, additional_forward_args=texts, **settings
            )
        return found.detach()

    def alone(self, number: int) -> "Explained":
        """One text without padding."""
        width = int(self.batch.mask[number].sum())
        chosen = slice(number, number + 1)
        batch = self.batch.rows(chosen).cut(width)
        parts = self.model.word_of(batch).shape[1]
        inputs, baseline = (vectors[chosen, :parts] for vectors in (self.inputs, self.baseline))
        return Explained(self.model, batch, inputs, baseline, self.classes[chosen])

    def keeping(self, kept: Float[Tensor, "rows words"]) -> Float[Tensor, "rows"]:
        """The number for this one text, each word kept (1), replaced by the baseline (0), or
        between."""
        return self.number_of(
            self.logits_keeping(kept), torch.zeros_like(kept[:, 0], dtype=torch.long)
        )

    def logits_keeping(self, kept: Float[Tensor, "rows words"]) -> Float[Tensor, "rows classes"]:
        """As `keeping`, the logits."""
        content = self.batch.content[0]
        word = self.model.word_of(self.batch)[0]
        number = content.long().cumsum(-1) - 1
        share = torch.ones(len(kept), len(word), 1, dtype=self.inputs.dtype, device=kept.device)
        share[:, word >= 0] = kept.to(self.inputs.dtype)[:, number[word[word >= 0]]].unsqueeze(-1)
        parts = []
        with torch.no_grad():
            for some in share.split(texts_at_once(self.model, len(word))):
                inputs = self.baseline + some * (self.inputs - self.baseline)
                texts = self.batch.rows(
                    torch.zeros(len(some), dtype=torch.long, device=kept.device)
                )
                parts.append(self.model.outputs_from(texts, inputs).logits)
        return torch.cat(parts)


def texts_at_once(model: nn.Module, width: int) -> int:
    """How many texts of this width a model reads at a time: so many that what it keeps of them is a
    few GB at most."""
    tables = {
        id(table)
        for one in model.modules()
        if isinstance(one, nn.Embedding)
        for table in one.parameters()
    }
    own = sum(part.numel() for part in model.parameters() if id(part) not in tables)
    return max(1, AT_ONCE * SMALL // max(SMALL, own) // width)


def per_word(at_parts: Float[Tensor, "batch parts"], subject: Subject) -> Scores:
    """What belongs to the parts that the model reads, added up for each word; 0 outside content."""
    return subject.classifier.per_position(subject.batch, at_parts).masked_fill(
        ~subject.batch.content, 0
    )


@dataclass(frozen=True)
class Attribution(Importance):
    """An importance of what the model computes, word by word; signed: below 0 speaks against the
    target.

    Attributes:
        target: what is attributed: `predicted`, the logit of the predicted class; `contrast`, that
            logit minus the runner-up's; or a class's name. Of two exclusive classes it is always
            the difference of the two logits, as nothing else of them means anything.
        baseline: what stands for an absent word: `zeros` or `mean`, the mean vector of the text's
            words.
    """

    signed = of_words = True
    target: str = PREDICTED
    baseline: Literal[tuple(BASELINES)] = "zeros"

    def prepare(self, data: TextDataModule, split: str) -> None:
        self.named_class(data.classes)

    def named_class(self, classes: Sequence[str]) -> int | None:
        """The number of the class that is named; None where none is. Raises `UserError` where there
        is no such class."""
        if self.target in (PREDICTED, CONTRAST):
            return None
        if self.target not in classes:
            known = [PREDICTED, CONTRAST, *classes]
            raise UserError(
                f"importance.{self.name}.target={visible(self.target)}: there is no such class"
                f"{nearest(self.target, known) or '.'} Expected {visible(listed(known))}"
            )
        return list(classes).index(self.target)

    def explained(self, subject: Subject) -> Explained:
        """The function that is explained."""
        model = subject.classifier
        batch = subject.batch
        logits = subject.outputs.logits.detach()
        order = logits.argsort(dim=-1, descending=True, stable=True)
        named = self.named_class(subject.classes)
        first = order[:, 0] if named is None else torch.full_like(order[:, 0], named)
        second = torch.full_like(first, -1)
        if model.task is not Task.MULTI_LABEL and model.classes == 2:
            second = 1 - first
        elif self.target == CONTRAST:
            second = order[:, 1]
        with torch.no_grad():
            inputs = model.inputs(batch)
        words = (model.word_of(batch) >= 0).unsqueeze(-1)
        replacement = torch.zeros_like(inputs[:, :1])
        if self.baseline == "mean":
            replacement = (inputs * words).sum(1, keepdim=True) / words.sum(1, keepdim=True).clamp(
                min=1
            )
        baseline = torch.where(words, replacement, inputs)
        return Explained(
            model, batch, inputs.detach(), baseline.detach(), torch.stack([first, second], -1)
        )

    def total(self, subject: Subject) -> Float[Tensor, "batch"]:
        """What complete scores add up to: the number for the text minus that for the baseline."""
        explained = subject.cached(self.explained)
        with torch.no_grad():
            return (explained(explained.inputs) - explained(explained.baseline)).double()


class TextByText(Attribution):
    """An attribution that takes one text at a time, without its padding; random numbers belong to
    the text."""

    @abstractmethod
    def of_text(
        self, explained: Explained, whole: Float[Tensor, "1 words"]
    ) -> Float[Tensor, "words"]:
        """The scores of the words of one text; `whole`: all are kept (`Explained.keeping`)."""

    def scores(self, subject: Subject) -> Scores:
        content = subject.batch.content
        scores = torch.zeros(content.shape, dtype=torch.float64, device=content.device)
        every = subject.cached(self.explained)
        draws = Draws(subject.seed, self.name)
        for row, number in enumerate(subject.batch.example_id.tolist()):
            with seeded(draws.generator(number)):
                whole = scores.new_ones(1, int(content[row].sum()))
                scores[row, content[row]] = self.of_text(every.alone(row), whole).to(scores)
        return scores


@dataclass(frozen=True)
class Perturbation(TextByText):
    """An attribution that replaces words and draws which, `samples` times."""

    drawn: ClassVar[bool] = True
    samples: Count = field(default=100, kw_only=True)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Libraries that draw from the global generators draw these numbers, and leave the generators
    as they were."""
    number = generator.initial_seed()
    state = np.random.get_state()  # noqa: NPY002 (the library's own)
    with torch.random.fork_rng(list(range(torch.cuda.device_count()))):
        torch.manual_seed(number)
        np.random.seed(number % 2**32)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002
