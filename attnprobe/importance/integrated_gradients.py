"""Gradients along the straight line from the baseline to the text (Sundararajan et al. 2017)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from captum.attr import IntegratedGradients as CaptumIntegratedGradients
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.attribution import Attribution, per_word, texts_at_once
from attnprobe.importance.base import Note, Subject


@dataclass(frozen=True)
class IntegratedGradients(Attribution):
    """∫ gradient × (text − baseline), signed; the scores of a text add up to target(text) − target(baseline) (captum).

    The steps are doubled for the texts whose sum is farther off than `gap`, as long as there are no more than `most_steps`.
    What is left is in the tables (`completeness_gap_…`), and the largest in the manifest.

    Attributes:
        steps: of the quadrature (Gauss and Legendre), to begin with.
        most_steps: at most this many.
        gap: in units of the logit.
    """

    name: ClassVar[str] = "integrated_gradients"
    title: ClassVar[str] = "integrated gradients"
    colour: ClassVar[str] = "#004488"
    complete: ClassVar[bool] = True
    steps: int = 32
    most_steps: int = 256
    gap: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.steps <= self.most_steps:
            raise UserError(
                f"importance.{self.name}.steps={self.steps}: expected 1 or more, and no more than most_steps="
                f"{self.most_steps}"
            )

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed, 0 outside content."""
        explained, total = subject.cached(self.explained), subject.cached(self.total)
        scores, steps = torch.zeros(explained.inputs.shape[:2], dtype=torch.float64, device=total.device), self.steps
        left, method = explained.texts, CaptumIntegratedGradients(explained)
        at_once = texts_at_once(subject.classifier, explained.inputs.shape[1])
        while True:
            at_vectors = method.attribute(
                explained.inputs[left],
                explained.baseline[left],
                additional_forward_args=left,
                n_steps=steps,
                internal_batch_size=max(len(left), at_once),
            )
            scores[left] = at_vectors.detach().sum(-1).double()
            left = left[(scores[left].sum(-1) - total[left]).abs() > self.gap]
            if 2 * steps > self.most_steps or not len(left):
                return per_word(scores, subject)
            steps *= 2

    def notes(self, subject: Subject) -> Iterator[Note]:
        """The largest gap, in units of the logit."""
        gap = (subject.cached(self.scores).sum(-1) - subject.cached(self.total)).abs()
        yield Note(f"largest_gap_{self.name}", float(gap.max()), max)
