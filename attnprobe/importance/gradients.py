"""Importances by the derivatives of the prediction: by words, vectors, states and attention
weights."""

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
from jaxtyping import Float, Int
from numpy.polynomial.legendre import leggauss
from torch import Tensor, nn

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Count, NotNegative, Positive
from attnprobe.importance.attribution import (
    Attribution,
    Explained,
    Perturbation,
    per_word,
    texts_at_once,
)
from attnprobe.importance.base import Importance, Note, Scores, Subject
from attnprobe.models.base import Model, Unit


@dataclass(frozen=True)
class Gradients:
    """|input · ∂ŷ/∂input| per position, 0 or more, not normalised; 0 outside content.

    Of the word vectors (`embedding`) and of the encoder's states (`hidden`: |α_t ∂ŷ/∂v · h_t| with
    v the attended vector; NaN where the model shows no states on the way to its prediction), the
    attention held fixed (the paper's), or reacting too."""

    embedding: Scores
    embedding_through_attention: Scores
    hidden: Scores
    hidden_through_attention: Scores


def gradients(classifier: Model, batch: Batch) -> Gradients:
    """Gradient × input at the word vectors and at the hidden states, with the attention held fixed
    and without.

    ŷ is the probability of class 1 of two; of more classes (or labels) each one's probability in
    turn, the absolute values summed; for an instance with a question the probability of the
    predicted class. Works where gradients are switched off, and touches neither the parameters nor
    their `.grad`. Raises `UserError` for a model of larger units.

    Note:
        The paper's code runs in train mode. For the hidden states it stores Σ_k ∂ŷ/∂h_tk with the
        attention held fixed, which is α_t times a number that does not depend on t, so that its
        rank correlation with the attention is 1 for every model; here it is gradient × state.
    """
    if classifier.unit is not Unit.WORD:
        raise UserError(
            "gradients of words need a model that attends to words; this one attends to larger units"
        )
    with torch.enable_grad():
        scale, reacting = classifier.scaled(batch)
        held = classifier.under(batch, scale, reacting, reacting.attention.detach())
        fixed, hidden_fixed = gradients_at(classifier, batch, scale, held)
        through, hidden_through = gradients_at(classifier, batch, scale, reacting)
    return Gradients(fixed, through, hidden_fixed, hidden_through)


def gradients_at(
    classifier: Model, batch: Batch, scale: Float[Tensor, "batch parts"], outputs: Outputs
) -> tuple[Scores, Scores]:
    """|input · ∂ŷ/∂input| of the words and of the states, for outputs that were computed with a
    factor of 1, `scale`, at each of the inputs: the derivative by it is input · gradient."""
    probability = probabilities(outputs.logits, classifier.task)
    hidden = outputs.hidden
    of_embedding = torch.zeros_like(outputs.content, dtype=scale.dtype)
    of_hidden = of_embedding.clone()
    # a model whose states are not on the way to its prediction has none to differentiate
    wanted = (scale, hidden) if hidden.requires_grad else (scale,)
    predicted = probability.argmax(-1)
    classes = probability.shape[-1]
    # p₀ = 1 − p₁ (of a score −p₁): the second pass would give the same numbers again
    first = 1 if classes == 2 and classifier.task is not Task.MULTI_LABEL else 0
    each = [torch.full_like(predicted, number) for number in range(first, classes)]
    for target in each if batch.question is None else [predicted]:
        chosen = probability.gather(-1, target.unsqueeze(-1)).sum()
        at_input, *at_hidden = torch.autograd.grad(chosen, wanted, retain_graph=True)
        of_embedding += classifier.per_position(batch, at_input).abs().detach()
        of_hidden += (at_hidden[0] * hidden).sum(-1).abs().detach() if at_hidden else torch.nan
    return of_embedding.masked_fill(~outputs.content, 0), of_hidden.masked_fill(~outputs.content, 0)


def gradients_of(subject: Subject) -> Gradients:
    """Those of a subject's batch."""
    return gradients(subject.classifier, subject.batch)


class Gradient(Importance):
    """|word vector · ∂ŷ/∂word vector|, the attention held fixed, 0 or more: see `gradients`.

    Attributes:
        which: of the `Gradients`.
    """

    name = "gradient"
    title = "gradient"
    colour = "#882255"
    shares = of_words = True
    which: ClassVar[str] = "embedding"

    def scores(self, subject: Subject) -> Scores:
        return getattr(subject.cached(gradients_of), self.which).double()


class GradientThroughAttention(Gradient):
    """|word vector · ∂ŷ/∂word vector|, the gradient through the attention as well: see
    `gradients`."""

    name = "gradient_through_attention"
    title = "gradient through attention"
    colour = "#44AA99"
    which = "embedding_through_attention"


class GradientInput(Attribution):
    """Word vector · ∂target/∂word vector, signed, the attention reacting too (captum; Shrikumar et
    al. 2016).

    The importance `gradient` is Jain & Wallace's: of probabilities, absolute, the attention held
    fixed."""

    name = "gradient_input"
    title = "gradient × input"
    colour = "#88CCEE"

    def scores(self, subject: Subject) -> Scores:
        at_vectors = subject.cached(self.explained).attribute(InputXGradient)
        return per_word(at_vectors.sum(-1).double(), subject)


class AttentionGradient(Importance):
    """∂p/∂α_t, p the probability of the predicted class, signed: see `Readout.gradient`."""

    name = "attention_gradient"
    title = "weight gradient"
    colour = "#009E73"
    signed = True
    times_weight: ClassVar[bool] = False

    def scores(self, subject: Subject) -> Scores:
        if self.times_weight:
            return subject.scores("attention_gradient") * subject.scores("attention")
        return subject.readout.gradient().double()


class GradientAttention(AttentionGradient):
    """α_t ∂p/∂α_t, p the probability of the predicted class, signed (Serrano & Smith 2019, section
    4)."""

    name = "gradient_attention"
    title = "gradient × attention"
    colour = "#D55E00"
    times_weight = True


class Saliency(Attribution):
    """‖∂target/∂word vector‖, 0 or more, the attention reacting too (captum; Simonyan et al.
    2014)."""

    name = "saliency"
    title = "gradient norm"
    colour = "#CC6677"
    shares = True
    signed = False

    def scores(self, subject: Subject) -> Scores:
        gradient = subject.cached(self.explained).attribute(CaptumSaliency, abs=False)
        return per_word(gradient.double().square().sum(-1), subject).sqrt()


class GradCam(Attribution):
    """ReLU(Σ_k w_k h_tk), w_k the mean over the positions of ∂target/∂h_tk, 0 or more, the
    attention reacting too.

    h are the states that are attended to: of words, or of sentences.
    """

    name = "grad_cam"
    title = "Grad-CAM"
    colour = "#EE8866"
    shares = True
    signed = of_words = False

    def scores(self, subject: Subject) -> Scores:
        explained = subject.cached(self.explained)
        content = subject.outputs.content.unsqueeze(-1)
        with torch.enable_grad():
            outputs = subject.classifier.outputs_from(
                subject.batch, explained.inputs.clone().requires_grad_()
            )
            (gradient,) = torch.autograd.grad(
                explained.number_of(outputs.logits).sum(), outputs.hidden
            )
        weight = (gradient * content).sum(1, keepdim=True) / content.sum(1, keepdim=True)
        return (weight * outputs.hidden.detach() * content).sum(-1).clamp(min=0).double()


@dataclass(frozen=True)
class SmoothGrad(Perturbation):
    """Mean of gradient × input over `samples` copies of the text with noise on its vectors, signed
    (captum).

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
        spread = float((explained.inputs.max() - explained.inputs.min()) * self.noise)
        at_vectors = explained.attribute(
            lambda of: NoiseTunnel(InputXGradient(of)), stdevs=spread, nt_samples=self.samples
        )
        return explained.model.per_position(explained.batch, at_vectors.sum(-1))[
            0, explained.batch.content[0]
        ]


def along(
    explained: Explained, texts: Int[Tensor, "stretches"], place: Float[Tensor, "stretches points"]
) -> tuple[Float[Tensor, "stretches points"], Float[Tensor, "stretches points parts"]]:
    """What is explained, and gradient × (text − baseline) of each part, at points of the way: 0 the
    baseline, 1 the text."""
    text = texts.repeat_interleave(place.shape[1])
    share = place.flatten()
    numbers = []
    found = []
    at_once = texts_at_once(explained.model, explained.inputs.shape[1])
    for some, at in zip(text.split(at_once), share.split(at_once), strict=True):
        apart = explained.inputs[some] - explained.baseline[some]
        inputs = (
            explained.baseline[some] + at[:, None, None].to(apart.dtype) * apart
        ).requires_grad_()
        with torch.enable_grad():
            numbers.append(explained(inputs, some))
            (gradient,) = torch.autograd.grad(numbers[-1].sum(), inputs)
        found.append((gradient * apart).sum(-1).double())
    return torch.cat(numbers).detach().double().view(place.shape), torch.cat(found).unflatten(
        0, place.shape
    )


@dataclass(frozen=True)
class IntegratedGradients(Attribution):
    """∫ gradient × (text − baseline), signed; the scores of a text add up to target(text) −
    target(baseline).

    Gauss-Legendre quadrature of stretches of the way. What one should add up to is known, the
    target at its end minus that at its beginning: farther off than `gap` times its length, it is
    halved, as long as a text has no more than `most_steps` points. What is left is in the tables
    (`completeness_gap_…`), and the largest in the manifest.

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
            said = f"importance.{self.name}.steps={self.steps}"
            raise UserError(f"{said}: expected no more than most_steps={self.most_steps}")

    def scores(self, subject: Subject) -> Scores:
        explained = subject.cached(self.explained)
        text = explained.batch.lengths.argsort(stable=True)  # read together: texts of like lengths
        scores = torch.zeros(explained.inputs.shape[:2], dtype=torch.float64, device=text.device)
        spent = torch.zeros_like(text)
        low = scores.new_zeros(len(text))
        width = scores.new_ones(len(text))
        at_low, at_high = along(explained, text, torch.stack([low, width], -1))[0].unbind(-1)
        points, weights = (torch.from_numpy(one).to(scores) / 2 for one in leggauss(self.steps))
        while True:
            place = low.unsqueeze(-1) + width.unsqueeze(-1) * (points + 0.5)
            found = torch.einsum(
                "p,kps->ks", weights, along(explained, text, place)[1]
            ) * width.unsqueeze(-1)
            off = (found.sum(-1) - (at_high - at_low)).abs() > self.gap * width
            spent += self.steps * text.bincount(minlength=len(spent))
            off &= (spent + 2 * self.steps * text[off].bincount(minlength=len(spent)))[
                text
            ] <= self.most_steps
            scores.index_add_(0, text[~off], found[~off])
            if not off.any():
                return per_word(scores, subject)
            text, low, width, at_low, at_high = (
                one[off] for one in (text, low, width / 2, at_low, at_high)
            )
            middle = along(explained, text, (low + width).unsqueeze(-1))[0][:, 0]
            halves = (
                (text, text),
                (low, low + width),
                (width, width),
                (at_low, middle),
                (middle, at_high),
            )
            text, low, width, at_low, at_high = (torch.stack(two, -1).flatten() for two in halves)

    def notes(self, subject: Subject) -> Iterator[Note]:
        gap = (subject.cached(self.scores).sum(-1) - subject.cached(self.total)).abs()
        yield Note(f"largest_gap_{self.name}", float(gap.max()), max)


@dataclass(frozen=True)
class DeepLift(Attribution):
    """DeepLIFT's rescale rule (Shrikumar et al. 2017, captum), signed; the scores of a text add up
    to target(text) − target(baseline), or are not given.

    The rule is defined for linear parts, and for nonlinear functions of one number each that are
    modules of their own. Softmax over the words, products and layer normalisation are neither:
    there scores need not add up.

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
        """Raises `UserError` where they add up in no text of the batch."""
        explained = subject.cached(self.explained)
        total = subject.cached(self.total)
        hooked = nn.Module()  # captum hooks the parts of the model that it finds in it
        hooked.model = explained.model
        hooked.forward = explained.__call__
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Setting forward, backward hooks and attributes")
            at_vectors = explained.attribute(lambda _: CaptumDeepLift(hooked), explained.baseline)
        scores = per_word(at_vectors.sum(-1).double(), subject)
        apart = (scores.sum(-1) - total).abs()
        adds_up = apart <= self.gap * total.abs().clamp(min=1)
        if not adds_up.any():
            raise UserError(
                f"importance {self.name}: its scores miss the difference of the logits by {float(apart.min()):.2g} or more "
                f"in each of {len(apart)} texts, for this model has parts that it has no rule for (softmax, products, layer "
                f"normalisation): leave it out, or take integrated_gradients, whose scores add up"
            )
        return torch.where(adds_up.unsqueeze(-1), scores, torch.nan)

    def notes(self, subject: Subject) -> Iterator[Note]:
        undefined = (subject.cached(self.scores).isnan() & subject.batch.content).any(-1)
        yield Note(f"texts_not_adding_up_{self.name}", float(undefined.sum()), add)


@dataclass(frozen=True)
class GradientShap(Perturbation):
    """Mean of gradient × (text − baseline) at points drawn evenly on the line between them, signed
    (captum). Scores of a text add up to target(text) − target(baseline) as the number of points
    grows.

    There is one baseline, and not a sample of texts: without noise this is integrated gradients by
    drawing.

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
        spread = float((explained.inputs.max() - explained.inputs.min()) * self.noise)
        at_vectors = explained.attribute(
            CaptumGradientShap, explained.baseline, stdevs=spread, n_samples=self.samples
        )
        return explained.model.per_position(explained.batch, at_vectors.sum(-1))[
            0, explained.batch.content[0]
        ]
