"""captum's methods, and others of their kind, asked of any model.

What is explained is one number of a prediction, as a function of the model's inputs.

The number is a logit, or the difference of two. Features are the positions of the attention, a
text's words or its sentences: replaced as a whole by a baseline vector for each word, or
differentiated at their words' vectors and added up over words and dimensions. Markers and padding
stay as they are.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
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
"""Parameters without embeddings above which a model reads fewer tokens at a time.

What a transformer keeps of a token for the way back grows with them: of 65,536 tokens MiniLM, which
has 11 million, kept 13 GB.
"""


@dataclass(frozen=True, eq=False)
class Explained:
    """One number per text, as a function of the vectors that the model reads.

    Attributes:
        inputs: the texts' own vectors.
        baseline: the same with every word replaced.
        text: the positions of each text, which are the features.
        classes: the class whose logit is meant, and the one whose logit is subtracted (−1: none),
            per text.
    """

    model: Model
    batch: Batch
    inputs: Float[Tensor, "batch parts embed"]
    baseline: Float[Tensor, "batch parts embed"]
    text: Bool[Tensor, "batch seq"]
    classes: Int[Tensor, "batch 2"]

    def __call__(
        self, inputs: Float[Tensor, "rows parts embed"], text: Int[Tensor, "rows"] | None = None
    ) -> Float[Tensor, "rows"]:
        """Compute the number for other vectors.

        Args:
            inputs: the vectors that the model reads.
            text: whose they are, in any order and number; None: of all texts in order.
        """
        batch = self.batch if text is None else self.batch.rows(text)
        batch = batch.cut(int(batch.mask.sum(-1).max()))  # padding that none of these texts needs
        parts = self.model.word_of(batch).shape[1]
        return self.number_of(self.model.outputs_from(batch, inputs[:, :parts]).logits, text)

    def number_of(
        self, logits: Float[Tensor, "rows classes"], text: Int[Tensor, "rows"] | None = None
    ) -> Float[Tensor, "rows"]:
        """Compute the number from logits; `text` as in a call."""
        return lead(logits, self.classes if text is None else self.classes[text])

    def attribute(
        self, method: Callable[..., Any], *arguments: Tensor, **settings: Any
    ) -> Float[Tensor, "batch parts embed"]:
        """Attribute to each number of the texts' vectors.

        Args:
            method: one of captum's classes, or what makes one of a function.
            arguments: of its `attribute`, after the inputs.
            settings: more of them, by name.
        """
        texts = torch.arange(len(self.inputs), device=self.inputs.device)
        inputs = self.inputs.clone().requires_grad_()
        with torch.enable_grad():
            attributions = method(self).attribute(
                inputs, *arguments, additional_forward_args=texts, **settings
            )
        return attributions.detach()

    def alone(self, number: int) -> "Explained":
        """One text without padding."""
        width = int(self.batch.mask[number].sum())
        chosen = slice(number, number + 1)
        batch = self.batch.rows(chosen).cut(width)
        parts = self.model.word_of(batch).shape[1]
        inputs = self.inputs[chosen, :parts]
        baseline = self.baseline[chosen, :parts]
        text = self.text[chosen]
        return Explained(self.model, batch, inputs, baseline, text, self.classes[chosen])

    def per_feature(self, values: Float[Tensor, "1 parts"]) -> Float[Tensor, "features"]:
        """Sum numbers of this one text's parts for each of its features."""
        sums = self.model.per_position(self.batch, values)[0]
        return sums[self.text[0, : len(sums)]]

    def keeping(self, keep: Float[Tensor, "rows features"]) -> Float[Tensor, "rows"]:
        """Compute the number for this one text with some of its words or sentences.

        Args:
            keep: each stays (1), is replaced by the baseline (0), or is between.
        """
        text = torch.zeros_like(keep[:, 0], dtype=torch.long)
        return self.number_of(self.logits_keeping(keep), text)

    def logits_keeping(self, keep: Float[Tensor, "rows features"]) -> Float[Tensor, "rows classes"]:
        """As `keeping`, the logits."""
        position = self.model.position_of_part(self.batch)[0]
        is_feature = position >= 0
        number = self.text[0].long().cumsum(-1) - 1
        feature = number[position[is_feature]]
        share = torch.ones(len(keep), len(position), 1, dtype=self.inputs.dtype, device=keep.device)
        share[:, is_feature] = keep.to(self.inputs.dtype)[:, feature].unsqueeze(-1)
        logits = []
        with torch.no_grad():
            for shares in share.split(texts_at_once(self.model, len(position))):
                inputs = self.baseline + shares * (self.inputs - self.baseline)
                text = torch.zeros(len(shares), dtype=torch.long, device=keep.device)
                logits.append(self.model.outputs_from(self.batch.rows(text), inputs).logits)
        return torch.cat(logits)


def lead(
    logits: Float[Tensor, "*rows classes"], classes: Int[Tensor, "*rows 2"]
) -> Float[Tensor, "*rows"]:
    """The logit of the first class, less that of the second where there is one (−1: none)."""
    first, second = logits.gather(-1, classes.clamp(min=0)).unbind(-1)
    return torch.where(classes[..., 1] < 0, first, first - second)


def texts_at_once(model: nn.Module, width: int) -> int:
    """How many texts of this width a model reads at a time.

    So many that what it keeps of them is a few GB at most.
    """
    embeddings: set[int] = set()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            embeddings.update(id(table) for table in module.parameters())
    size = sum(part.numel() for part in model.parameters() if id(part) not in embeddings)
    return max(1, AT_ONCE * SMALL // max(SMALL, size) // width)


def per_position(values: Float[Tensor, "batch parts"], subject: Subject) -> Scores:
    """Add up what belongs to the parts that the model reads, for each position; 0 off the text."""
    scores = subject.classifier.per_position(subject.batch, values)
    return scores.masked_fill(~subject.outputs.text, 0)


@dataclass(frozen=True)
class Targeted(Importance):
    """An importance for one number of the prediction, a logit or the difference of two.

    Signed: below 0 speaks against the target.

    Attributes:
        target: what is attributed: `predicted`, the logit of the predicted class; `contrast`, that
            logit minus the runner-up's; or a class's name. Of two exclusive classes it is always
            the difference of the two logits, as nothing else of them means anything.
    """

    signed = True
    target: str = PREDICTED

    def prepare(self, data: TextDataModule, split: str) -> None:
        """Check that the data have the class that is named as the target."""
        self.named_class(data.classes)

    def named_class(self, classes: Sequence[str]) -> int | None:
        """The number of the class that is the target; None where none is named.

        Raises:
            UserError: the data have no such class.
        """
        if self.target in (PREDICTED, CONTRAST):
            return None
        if self.target not in classes:
            targets = [PREDICTED, CONTRAST, *classes]
            raise UserError(
                f"importance.{self.name}.target={visible(self.target)}: there is no such class"
                f"{nearest(self.target, targets) or '.'} Expected {visible(listed(targets))}"
            )
        return list(classes).index(self.target)

    def target_classes(self, subject: Subject) -> Int[Tensor, "batch 2"]:
        """The class whose logit is meant, and the one whose logit is subtracted (−1: none)."""
        model = subject.classifier
        order = subject.outputs.logits.detach().argsort(dim=-1, descending=True, stable=True)
        target = self.named_class(subject.classes)
        first = order[:, 0] if target is None else torch.full_like(order[:, 0], target)
        second = torch.full_like(first, -1)
        if model.task is not Task.MULTI_LABEL and model.classes == 2:
            second = 1 - first
        elif self.target == CONTRAST:
            second = order[:, 1]
        return torch.stack([first, second], -1)


@dataclass(frozen=True)
class Attribution(Targeted):
    """An importance of what the model computes from each word, or each sentence.

    Attributes:
        baseline: what stands for an absent word: `zeros` or `mean`, the mean vector of the text's
            words.
    """

    baseline: Literal[tuple(BASELINES)] = "zeros"

    def explained(self, subject: Subject) -> Explained:
        """The function that is explained."""
        model = subject.classifier
        batch = subject.batch
        with torch.no_grad():
            inputs = model.inputs(batch)
        words = (model.word_of(batch) >= 0).unsqueeze(-1)
        replacement = torch.zeros_like(inputs[:, :1])
        if self.baseline == "mean":
            count = words.sum(1, keepdim=True).clamp(min=1)
            replacement = (inputs * words).sum(1, keepdim=True) / count
        return Explained(
            model,
            batch,
            inputs=inputs.detach(),
            baseline=torch.where(words, replacement, inputs).detach(),
            text=subject.outputs.text,
            classes=self.target_classes(subject),
        )

    def total(self, subject: Subject) -> Float[Tensor, "batch"]:
        """What complete scores add up to: the number for the text minus that for the baseline."""
        explained = subject.cached(self.explained)
        with torch.no_grad():
            return (explained(explained.inputs) - explained(explained.baseline)).double()


class TextByText(Attribution):
    """An attribution that takes one text at a time, without its padding.

    Random numbers belong to the text.
    """

    @abstractmethod
    def of_text(
        self, explained: Explained, whole: Float[Tensor, "1 features"]
    ) -> Float[Tensor, "features"]:
        """The scores of the words of one text, or of its sentences.

        Args:
            explained: the function, for this text.
            whole: that all of them stay, as `Explained.keeping` takes it.
        """

    def scores(self, subject: Subject) -> Scores:
        """The scores of all texts, 0 outside content."""
        text = subject.outputs.text
        scores = torch.zeros(text.shape, dtype=torch.float64, device=text.device)
        explained = subject.cached(self.explained)
        draws = Draws(subject.seed, self.name)
        for row, number in enumerate(subject.batch.example_id.tolist()):
            whole = scores.new_ones(1, int(text[row].sum()))
            with seeded(draws.generator(number)):
                features = self.of_text(explained.alone(row), whole)
            scores[row, text[row]] = features.to(scores)
        return scores


@dataclass(frozen=True)
class Perturbation(TextByText):
    """An attribution that replaces words and draws which, `samples` times."""

    drawn: ClassVar[bool] = True
    samples: Count = field(default=100, kw_only=True)


@contextmanager
def seeded(generator: torch.Generator) -> Iterator[None]:
    """Make libraries that draw from the global generators draw this generator's numbers.

    The global generators are left as they were.
    """
    number = generator.initial_seed()
    state = np.random.get_state()  # noqa: NPY002  the libraries draw from numpy's global generator
    with torch.random.fork_rng(list(range(torch.cuda.device_count()))):
        torch.manual_seed(number)
        np.random.seed(number % 2**32)  # noqa: NPY002  as above
        try:
            yield
        finally:
            np.random.set_state(state)  # noqa: NPY002  as above
