"""Importances by derivatives of the prediction: by words, vectors, states, attention weights."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from operator import add
from typing import ClassVar

import torch
from captum.attr import DeepLift as CaptumDeepLift
from captum.attr import GradientShap as CaptumGradientShap
from captum.attr import InputXGradient, NoiseTunnel
from captum.attr import Saliency as CaptumSaliency
from jaxtyping import Bool, Float, Int
from numpy.polynomial.legendre import leggauss
from torch import Tensor, nn

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Count, NotNegative, Positive
from attnprobe.importance.attribution import (
    Attribution,
    Explained,
    Perturbation,
    per_position,
    texts_at_once,
)
from attnprobe.importance.base import Importance, Note, Scores, Subject
from attnprobe.models.base import Model


@dataclass(frozen=True)
class Gradients:
    """|input · ∂ŷ/∂input| per position, 0 or more, not normalised; 0 outside content.

    Attributes:
        embedding: of the word vectors, the attention held fixed (the paper's).
        embedding_through_attention: the same, the attention reacting too.
        hidden: of the encoder's states, the attention held fixed: |α_t ∂ŷ/∂v · h_t| with v the
            attended vector; NaN where the model shows no states on the way to its prediction.
        hidden_through_attention: the same, the attention reacting too.
    """

    embedding: Scores
    embedding_through_attention: Scores
    hidden: Scores
    hidden_through_attention: Scores


def gradients(classifier: Model, batch: Batch) -> Gradients:
    """Take gradient × input at the word vectors and at the hidden states.

    With the attention held fixed and without. ŷ is the probability of class 1 of two; of more
    classes (or labels) each one's probability in turn, the absolute values summed; for an instance
    with a question the probability of the predicted class. Works where gradients are switched off,
    and touches neither the parameters nor their `.grad`.

    Of a model that attends to sentences it is the derivative by a factor on all words of a sentence
    at once: |Σ word vector · ∂ŷ/∂word vector| over its words, as a word's is over its pieces. To
    first order that is what the prediction loses where the sentence's vectors shrink to 0; a sum of
    sizes would call a sentence important whose words cancel. Held fixed are the sentences' weights;
    how the words of a sentence share its weight reacts.

    Note:
        The paper's code runs in train mode. For the hidden states it stores Σ_k ∂ŷ/∂h_tk with the
        attention held fixed, which is α_t times a number that does not depend on t, so that its
        rank correlation with the attention is 1 for every model; here it is gradient × state.
    """
    with torch.enable_grad():
        scale, reacting = classifier.scaled(batch)
        fixed = classifier.under(batch, scale, reacting, reacting.attention.detach())
        embedding, hidden = gradients_at(classifier, batch, scale, fixed)
        through, hidden_through = gradients_at(classifier, batch, scale, reacting)
    return Gradients(
        embedding=embedding,
        embedding_through_attention=through,
        hidden=hidden,
        hidden_through_attention=hidden_through,
    )


def gradients_at(
    classifier: Model, batch: Batch, scale: Float[Tensor, "batch parts"], outputs: Outputs
) -> tuple[Scores, Scores]:
    """Differentiate ŷ (see `gradients`) by the words and by the states of given outputs.

    Args:
        classifier: whose outputs they are.
        batch: the texts.
        scale: a factor of 1 for each of the inputs that the outputs were computed with; the
            derivative by it is input · gradient.
        outputs: of `Model.scaled` or `Model.under`, gradients enabled.

    Returns:
        |input · ∂ŷ/∂input| of the words (or sentences), and of the states.
    """
    probability = probabilities(outputs.logits, classifier.task)
    hidden = outputs.hidden
    embedding_scores = torch.zeros_like(outputs.content, dtype=scale.dtype)
    hidden_scores = embedding_scores.clone()
    # a model whose states are not on the way to its prediction has none to differentiate
    inputs = (scale, hidden) if hidden.requires_grad else (scale,)
    for target in _targets(probability, batch, classifier.task):
        total = probability.gather(-1, target.unsqueeze(-1)).sum()
        by_scale, *by_hidden = torch.autograd.grad(total, inputs, retain_graph=True)
        embedding_scores += classifier.per_position(batch, by_scale).abs().detach()
        if by_hidden:
            hidden_scores += (by_hidden[0] * hidden).sum(-1).abs().detach()
        else:
            hidden_scores += torch.nan
    outside = ~outputs.content
    return embedding_scores.masked_fill(outside, 0), hidden_scores.masked_fill(outside, 0)


def _targets(
    probability: Float[Tensor, "batch classes"], batch: Batch, task: Task
) -> list[Int[Tensor, "batch"]]:
    """The classes whose probabilities are differentiated, one per example and pass."""
    predicted = probability.argmax(-1)
    if batch.question is not None:
        return [predicted]
    classes = probability.shape[-1]
    # p₀ = 1 − p₁ (of a score −p₁): the second pass would give the same numbers again
    first = 1 if classes == 2 and task is not Task.MULTI_LABEL else 0
    return [torch.full_like(predicted, number) for number in range(first, classes)]


def gradients_of(subject: Subject) -> Gradients:
    """The gradients of a subject's batch."""
    return gradients(subject.classifier, subject.batch)


class Gradient(Importance):
    """|word vector · ∂ŷ/∂word vector|, the attention held fixed, 0 or more: see `gradients`.

    Attributes:
        which: of the `Gradients`.
    """

    name = "gradient"
    title = "gradient"
    colour = "#882255"
    shares = True
    which: ClassVar[str] = "embedding"

    def scores(self, subject: Subject) -> Scores:
        """0 or more, 0 outside content."""
        return getattr(subject.cached(gradients_of), self.which).double()


class GradientThroughAttention(Gradient):
    """|word vector · ∂ŷ/∂word vector|, the attention reacting too: see `gradients`."""

    name = "gradient_through_attention"
    title = "gradient through attention"
    colour = "#44AA99"
    which = "embedding_through_attention"


class GradientInput(Attribution):
    """Word vector · ∂target/∂word vector, signed, the attention reacting too.

    By captum (Shrikumar et al. 2016). The importance `gradient` is Jain & Wallace's: of
    probabilities, absolute, the attention held fixed.
    """

    name = "gradient_input"
    title = "gradient × input"
    colour = "#88CCEE"

    def scores(self, subject: Subject) -> Scores:
        """Signed, 0 outside content."""
        attributions = subject.cached(self.explained).attribute(InputXGradient)
        return per_position(attributions.sum(-1).double(), subject)


class AttentionGradient(Importance):
    """∂p/∂α_t, p the probability of the predicted class, signed: see `Readout.gradient`."""

    name = "attention_gradient"
    title = "weight gradient"
    colour = "#009E73"
    signed = True
    times_weight: ClassVar[bool] = False

    def scores(self, subject: Subject) -> Scores:
        """Signed, times the weight where `times_weight` is set."""
        if self.times_weight:
            return subject.scores("attention_gradient") * subject.scores("attention")
        return subject.readout.gradient().double()


class GradientAttention(AttentionGradient):
    """α_t ∂p/∂α_t, p the probability of the predicted class, signed.

    Serrano & Smith 2019, section 4.
    """

    name = "gradient_attention"
    title = "gradient × attention"
    colour = "#D55E00"
    times_weight = True


class Saliency(Attribution):
    """‖∂target/∂word vector‖, 0 or more, the attention reacting too.

    By captum (Simonyan et al. 2014).
    """

    name = "saliency"
    title = "gradient norm"
    colour = "#CC6677"
    shares = True
    signed = False

    def scores(self, subject: Subject) -> Scores:
        """0 or more, 0 outside content."""
        gradient = subject.cached(self.explained).attribute(CaptumSaliency, abs=False)
        return per_position(gradient.double().square().sum(-1), subject).sqrt()


class GradCam(Attribution):
    """ReLU(Σ_k w_k h_tk), w_k the mean over the positions of ∂target/∂h_tk; 0 or more.

    The attention reacts too. h are the states that are attended to: of words, or of sentences.
    """

    name = "grad_cam"
    title = "Grad-CAM"
    colour = "#EE8866"
    shares = True
    signed = False

    def scores(self, subject: Subject) -> Scores:
        """0 or more, 0 outside content."""
        explained = subject.cached(self.explained)
        content = subject.outputs.content.unsqueeze(-1)
        inputs = explained.inputs.clone().requires_grad_()
        with torch.enable_grad():
            outputs = subject.classifier.outputs_from(subject.batch, inputs)
            total = explained.number_of(outputs.logits).sum()
            (gradient,) = torch.autograd.grad(total, outputs.hidden)
        weight = (gradient * content).sum(1, keepdim=True) / content.sum(1, keepdim=True)
        return (weight * outputs.hidden.detach() * content).sum(-1).clamp(min=0).double()


@dataclass(frozen=True)
class SmoothGrad(Perturbation):
    """Mean of gradient × input over copies of the text with noise on its vectors, signed.

    By captum.

    Attributes:
        samples: noisy copies.
        noise: standard deviation of the noise, as a share of the range of the text's own vectors
            (the paper's 10 to 20 %).
    """

    name = "smooth_grad"
    title = "SmoothGrad"
    colour = "#DDCC77"
    samples: Count = 25
    noise: Positive = 0.1

    def of_text(self, explained: Explained, whole: Tensor) -> Float[Tensor, "words"]:
        """Signed."""
        spread = float((explained.inputs.max() - explained.inputs.min()) * self.noise)
        attributions = explained.attribute(
            lambda function: NoiseTunnel(InputXGradient(function)),
            stdevs=spread,
            nt_samples=self.samples,
        )
        return explained.per_feature(attributions.sum(-1))


def along(
    explained: Explained, texts: Int[Tensor, "stretches"], place: Float[Tensor, "stretches points"]
) -> tuple[Float[Tensor, "stretches points"], Float[Tensor, "stretches points parts"]]:
    """Evaluate and differentiate at points of the way from the baseline to the text.

    Args:
        explained: the function.
        texts: the text of each stretch.
        place: points of it, 0 the baseline, 1 the text.

    Returns:
        What is explained, and gradient × (text − baseline) of each part.
    """
    text = texts.repeat_interleave(place.shape[1])
    share = place.flatten()
    size = texts_at_once(explained.model, explained.inputs.shape[1])
    numbers = []
    products = []
    for rows, shares in zip(text.split(size), share.split(size), strict=True):
        baseline = explained.baseline[rows]
        difference = explained.inputs[rows] - baseline
        inputs = baseline + shares[:, None, None].to(difference.dtype) * difference
        inputs.requires_grad_()
        with torch.enable_grad():
            number = explained(inputs, rows)
            (gradient,) = torch.autograd.grad(number.sum(), inputs)
        numbers.append(number.detach().double())
        products.append((gradient * difference).sum(-1).double())
    return torch.cat(numbers).view(place.shape), torch.cat(products).unflatten(0, place.shape)


@dataclass(frozen=True)
class Stretches:
    """Stretches of the ways from the baselines (0) to the texts (1), any number for each text.

    Attributes:
        text: which text's way.
        low: where the stretch begins.
        width: its length.
        number_low: what is explained, at the beginning.
        number_high: the same at the end.
    """

    text: Int[Tensor, "stretches"]
    low: Float[Tensor, "stretches"]
    width: Float[Tensor, "stretches"]
    number_low: Float[Tensor, "stretches"]
    number_high: Float[Tensor, "stretches"]

    @classmethod
    def whole(cls, explained: Explained, text: Int[Tensor, "stretches"]) -> "Stretches":
        """The whole way of each text."""
        low = torch.zeros_like(text, dtype=torch.float64)
        width = torch.ones_like(low)
        numbers, _ = along(explained, text, torch.stack([low, width], -1))
        return cls(text, low, width, numbers[:, 0], numbers[:, 1])

    def halved(self, explained: Explained, chosen: Bool[Tensor, "stretches"]) -> "Stretches":
        """Both halves of the chosen stretches."""
        text = self.text[chosen]
        low = self.low[chosen]
        width = self.width[chosen] / 2
        middle = low + width
        numbers, _ = along(explained, text, middle.unsqueeze(-1))
        return Stretches(
            text=text.repeat_interleave(2),
            low=alternating(low, middle),
            width=width.repeat_interleave(2),
            number_low=alternating(self.number_low[chosen], numbers[:, 0]),
            number_high=alternating(numbers[:, 0], self.number_high[chosen]),
        )


def alternating(first: Float[Tensor, "n"], second: Float[Tensor, "n"]) -> Float[Tensor, "two_n"]:
    """The numbers of both in turn."""
    return torch.stack([first, second], -1).flatten()


@dataclass(frozen=True)
class IntegratedGradients(Attribution):
    """∫ gradient × (text − baseline), signed; complete.

    The scores of a text add up to target(text) − target(baseline). By Gauss-Legendre quadrature of
    stretches of the way. What one should add up to is known, the target at its end minus that at
    its beginning: farther off than `gap` times its length, it is halved, as long as a text has no
    more than `most_steps` points. What is left is in the tables (`completeness_gap_…`), and the
    largest in the manifest.

    Attributes:
        steps: points of a stretch; the first is the whole way.
        most_steps: at most this many for a text.
        gap: in units of the logit.
    """

    name = "integrated_gradients"
    title = "integrated gradients"
    colour = "#004488"
    complete = True
    steps: Count = 12
    most_steps: Count = 255
    gap: Positive = 1e-3

    def __post_init__(self) -> None:
        if self.steps > self.most_steps:
            raise UserError(
                f"importance.{self.name}.steps={self.steps}: expected no more than "
                f"most_steps={self.most_steps}"
            )

    def scores(self, subject: Subject) -> Scores:
        """Signed, 0 outside content."""
        explained = subject.cached(self.explained)
        order = explained.batch.lengths.argsort(stable=True)  # texts of like lengths together
        count = len(order)
        scores = torch.zeros(explained.inputs.shape[:2], dtype=torch.float64, device=order.device)
        points_taken = torch.zeros_like(order)
        stretches = Stretches.whole(explained, order)
        while True:
            text = stretches.text
            integrals = self._integrals(explained, stretches)
            points_taken += self.steps * text.bincount(minlength=count)

            rise = stretches.number_high - stretches.number_low
            halve = (integrals.sum(-1) - rise).abs() > self.gap * stretches.width
            points_needed = 2 * self.steps * text[halve].bincount(minlength=count)
            halve &= (points_taken + points_needed <= self.most_steps)[text]

            scores.index_add_(0, text[~halve], integrals[~halve])
            if not halve.any():
                return per_position(scores, subject)
            stretches = stretches.halved(explained, halve)

    def _integrals(
        self, explained: Explained, stretches: Stretches
    ) -> Float[Tensor, "stretches parts"]:
        """Integrate along each stretch, by Gauss-Legendre quadrature."""
        # on (−½, ½), where the weights add up to 1
        nodes, weights = (
            torch.from_numpy(values).to(stretches.low) / 2 for values in leggauss(self.steps)
        )
        width = stretches.width.unsqueeze(-1)
        place = stretches.low.unsqueeze(-1) + width * (nodes + 0.5)
        _, products = along(explained, stretches.text, place)
        return torch.einsum("p,kps->ks", weights, products) * width

    def notes(self, subject: Subject) -> Iterator[Note]:
        """By how much a text's scores miss completeness at most, in units of the logit."""
        gap = (subject.cached(self.scores).sum(-1) - subject.cached(self.total)).abs()
        yield Note(f"largest_gap_{self.name}", float(gap.max()), max)


@dataclass(frozen=True)
class DeepLift(Attribution):
    """DeepLIFT's rescale rule, signed (Shrikumar et al. 2017, captum).

    The scores of a text add up to target(text) − target(baseline), or are not given. The rule is
    defined for linear parts, and for nonlinear functions of one number each that are modules of
    their own. Softmax over the words, products and layer normalisation are neither: there scores
    need not add up.

    Attributes:
        gap: by how much they may miss, as a share of the difference (of 1 at least); a text that
            misses more is undefined.
    """

    name = "deep_lift"
    title = "DeepLIFT"
    colour = "#805A3B"
    complete = True
    gap: Positive = 1e-3

    def scores(self, subject: Subject) -> Scores:
        """Signed; NaN for a text whose scores do not add up.

        Raises:
            UserError: they add up in no text of the batch.
        """
        explained = subject.cached(self.explained)
        total = subject.cached(self.total)
        hooked = nn.Module()  # captum hooks the parts of the model that it finds in it
        hooked.model = explained.model
        hooked.forward = explained.__call__
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Setting forward, backward hooks and attributes")
            attributions = explained.attribute(lambda _: CaptumDeepLift(hooked), explained.baseline)
        scores = per_position(attributions.sum(-1).double(), subject)
        miss = (scores.sum(-1) - total).abs()
        adds_up = miss <= self.gap * total.abs().clamp(min=1)
        if not adds_up.any():
            raise UserError(
                f"importance {self.name}: its scores miss the difference of the logits by "
                f"{float(miss.min()):.2g} or more in each of {len(miss)} texts, for this model has "
                f"parts that it has no rule for (softmax, products, layer normalisation): leave it "
                f"out, or take integrated_gradients, whose scores add up"
            )
        return torch.where(adds_up.unsqueeze(-1), scores, torch.nan)

    def notes(self, subject: Subject) -> Iterator[Note]:
        """In how many texts the scores do not add up."""
        undefined = (subject.cached(self.scores).isnan() & subject.outputs.text).any(-1)
        yield Note(f"texts_not_adding_up_{self.name}", float(undefined.sum()), add)


@dataclass(frozen=True)
class GradientShap(Perturbation):
    """Mean of gradient × (text − baseline) at points drawn evenly between them, signed.

    By captum. Scores of a text add up to target(text) − target(baseline) as the number of points
    grows. There is one baseline, and not a sample of texts: without noise this is integrated
    gradients by drawing.

    Attributes:
        samples: points that are drawn.
        noise: standard deviation of the noise on the text's vectors, as a share of the range of
            these; 0: none.
    """

    name = "gradient_shap"
    title = "GradientSHAP"
    colour = "#6F4E37"
    complete = True
    samples: Count = 50
    noise: NotNegative = 0.0

    def of_text(self, explained: Explained, whole: Tensor) -> Float[Tensor, "words"]:
        """Signed."""
        spread = float((explained.inputs.max() - explained.inputs.min()) * self.noise)
        attributions = explained.attribute(
            CaptumGradientShap, explained.baseline, stdevs=spread, n_samples=self.samples
        )
        return explained.per_feature(attributions.sum(-1))
