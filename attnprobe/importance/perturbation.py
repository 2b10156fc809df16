"""Importances by what the prediction loses when words are replaced by a baseline."""

from dataclasses import dataclass

import torch
from captum._utils.models.linear_model import SkLearnRidge
from captum.attr import KernelShap as CaptumKernelShap
from captum.attr import Lime as CaptumLime
from captum.attr import Occlusion as CaptumOcclusion
from captum.attr import ShapleyValueSampling
from captum.attr._core.lime import get_exp_kernel_similarity_function
from jaxtyping import Float
from torch import Tensor

from attnprobe.core.settings import Count, Positive
from attnprobe.importance.attribution import Explained, Perturbation, TextByText


@dataclass(frozen=True)
class Occlusion(TextByText):
    """target(text) − target(text without the window), signed; by captum.

    The mean over the windows that hold the word.

    Attributes:
        window: words in a row that are replaced together; a shorter text is replaced as a whole.
    """

    name = "occlusion"
    title = "occlusion"
    colour = "#6699CC"
    window: Count = 1

    def of_text(self, explained: Explained, whole: Tensor) -> Float[Tensor, "words"]:
        """Signed."""
        words = whole.shape[1]
        window = (min(self.window, words),)
        attribute = CaptumOcclusion(explained.keeping).attribute
        return attribute(whole, window, baselines=0.0, perturbations_per_eval=words)[0]


@dataclass(frozen=True)
class Lime(Perturbation):
    """Coefficients of a ridge regression of the target on which words are kept, signed.

    By captum. Each of `samples` texts keeps every word with probability 1/2; texts count by
    exp(−d² / 2 width²), d their cosine distance from the whole text.

    Attributes:
        samples: texts that are drawn.
        width: of the kernel (the authors' code for text: 25 on distances of 0 to 100).
        alpha: of the ridge (the authors' code: 1).
    """

    name = "lime"
    title = "LIME"
    colour = "#BB5566"
    samples: Count = 500
    width: Positive = 0.25
    alpha: Positive = 1.0

    def of_text(self, explained: Explained, whole: Tensor) -> Float[Tensor, "words"]:
        """Signed."""
        kernel = get_exp_kernel_similarity_function("cosine", kernel_width=self.width)
        method = CaptumLime(explained.keeping, SkLearnRidge(alpha=self.alpha), kernel)
        scores = method.attribute(
            whole, n_samples=self.samples, perturbations_per_eval=self.samples
        )
        return scores[0]


@dataclass(frozen=True)
class KernelShap(Perturbation):
    """Estimates of the Shapley values of the words, signed (captum).

    Attributes:
        samples: sets of words that are drawn, the empty and the whole one among them.
    """

    name = "kernel_shap"
    title = "KernelSHAP"
    colour = "#AA4499"
    complete = True
    samples: Count = 500

    def of_text(self, explained: Explained, whole: Tensor) -> Float[Tensor, "words"]:
        """Signed."""
        if whole.shape[1] == 1:  # nothing to draw: a set of its own would be empty or whole
            return explained.keeping(whole) - explained.keeping(whole * 0)
        method = CaptumKernelShap(explained.keeping)
        scores = method.attribute(
            whole, n_samples=self.samples, perturbations_per_eval=self.samples
        )
        return scores[0]


@dataclass(frozen=True)
class ShapleySampling(Perturbation):
    """Mean contribution of each word over random orders in which the words are added, signed.

    By captum.

    Attributes:
        samples: orders that are drawn; each takes as many predictions as the text has words.
    """

    name = "shapley_sampling"
    title = "Shapley, sampled"
    colour = "#997700"
    complete = True
    samples: Count = 25

    def of_text(self, explained: Explained, whole: Tensor) -> Float[Tensor, "words"]:
        """Signed."""
        method = ShapleyValueSampling(explained.keeping)
        scores = method.attribute(
            whole, n_samples=self.samples, perturbations_per_eval=whole.shape[1]
        )
        return scores[0]


class SufficientSubset(TextByText):
    """The step at which a word goes in backward selection over the number of words, above 0 to 1.

    At every step the word goes without which the target stays highest; the last one is the most
    important. The first words from the top that keep the target above a threshold are a sufficient
    input subset (algorithm 1 to 3). Takes n (n + 1) / 2 predictions of a text of n words.
    """

    name = "sufficient_subset"
    title = "backward selection (SIS)"
    colour = "#225522"
    signed = False

    def of_text(self, explained: Explained, whole: Tensor) -> Float[Tensor, "words"]:
        """Above 0 to 1."""
        # of equal words the first goes first
        keep = whole[0].clone()
        words = whole.shape[1]
        scores = torch.zeros_like(keep)
        for step in range(1, words + 1):
            candidates = keep.nonzero()[:, 0]
            without = keep.repeat(len(candidates), 1)
            without[torch.arange(len(candidates)), candidates] = 0
            word = candidates[explained.keeping(without).argmax()]
            keep[word] = 0
            scores[word] = step / words
        return scores
