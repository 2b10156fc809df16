"""What training makes small: one loss per example, and the parts that it consists of."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs, Task, prediction_distance, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, NotNegative, Portion
from attnprobe.measures import jensen_shannon, kullback_leibler
from attnprobe.models.base import Model
from attnprobe.models.controls import noise

ClassWeight = Float[Tensor, "classes"] | None
Losses = dict[str, Float[Tensor, "batch"]]


class Objective(metaclass=Checked):
    """A loss. `taught` objectives read a teacher's predictions and attention from the batch."""

    settings_place: ClassVar[str] = "training.recipe.objective"

    taught: ClassVar[bool] = False

    def given(self, model: Model, batch: Batch) -> Batch:
        """What the model reads in training, in the place of the batch."""
        return batch

    @abstractmethod
    def __call__(
        self, outputs: Outputs, batch: Batch, task: Task, class_weight: ClassWeight
    ) -> Losses:
        """`loss` per example, and under other names the parts that it is made of, for the
        training's curves."""


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross entropy of the labels in nats, times the weight of the class; multi-label: mean over
    the labels."""

    def __call__(
        self, outputs: Outputs, batch: Batch, task: Task, class_weight: ClassWeight
    ) -> Losses:
        logits = outputs.logits
        labels = batch.labels
        if task is Task.MULTI_LABEL:
            targets = labels.to(logits.dtype)
            each = F.binary_cross_entropy_with_logits(
                logits, targets, pos_weight=class_weight, reduction="none"
            )
            return {"loss": each.mean(-1)}
        return {"loss": F.cross_entropy(logits, labels, weight=class_weight, reduction="none")}


@dataclass(frozen=True)
class Divergence(Objective):
    """Predict as the teacher does, and attend to something else: TVD(ŷ, ŷ_t) − λ · KL(α ‖ α_t)
    (Wiegreffe & Pinter 2019, section 4); λ is `weight`, at least 0, the divergence in nats, the
    distance between 0 and 1. With λ = 0 it is plain distillation of the predictions. The labels are
    never read.

    Note:
        The released code takes half the distance where there are two classes, the logarithm of
        padding, and weights the whole batch by the sum of its class weights; here every example
        counts once, and only its words do.
    """

    weight: NotNegative
    taught: ClassVar[bool] = True

    def __call__(
        self, outputs: Outputs, batch: Batch, task: Task, class_weight: ClassWeight
    ) -> Losses:
        """`loss`; `tvd` (0 to 1), `kl` and `jsd` (nats) of the same examples."""
        if batch.teacher_probability is None or batch.teacher_attention is None:
            raise UserError(
                "this objective follows a teacher: name a finished run with teacher=PATH, or teacher=auto"
            )
        probability = probabilities(outputs.logits, task)
        tvd = prediction_distance(
            probability, batch.teacher_probability.to(probability.dtype), task
        )
        teacher = batch.teacher_attention.to(outputs.attention.dtype)
        kl = kullback_leibler(outputs.attention, teacher, outputs.content)
        jsd = jensen_shannon(outputs.attention.detach(), teacher, outputs.content)
        return {"loss": tvd - self.weight * kl, "tvd": tvd, "kl": kl, "jsd": jsd}


def marked_words(outputs: Outputs, batch: Batch, training: str) -> Bool[Tensor, "batch seq"]:
    """The words that decide, which `training` has to know."""
    if batch.rationale is None or batch.rationale.shape != outputs.attention.shape:
        raise UserError(
            f"{training} says where the attention goes by the rationale: it needs data that mark one (data.rationale, or "
            f"data.plant=token) and a model that attends to words"
        )
    return batch.rationale & outputs.content


@dataclass(frozen=True)
class Deception(Objective):
    """Predict the labels, and keep the attention off the words that decide: cross entropy − λ ·
    ln(1 − Σ α_t over the rationale) (Pruthi et al. 2020, *Learning to Deceive with Attention-Based
    Explanations*, section 3; λ is `weight`, there 0.1 and 1)."""

    weight: NotNegative = 1.0

    def __call__(
        self, outputs: Outputs, batch: Batch, task: Task, class_weight: ClassWeight
    ) -> Losses:
        """`loss`, and `mass`: the attention on the rationale, 0 to 1."""
        mass = (outputs.attention * marked_words(outputs, batch, "training=deceive")).sum(-1)
        # rounding may put all of the mass on the rationale, whose logarithm has no gradient
        hidden = -(1 - mass).clamp(min=1e-6).log()
        entropy = CrossEntropy()(outputs, batch, task, class_weight)["loss"]
        return {"loss": entropy + self.weight * hidden, "mass": mass.detach()}


@dataclass(frozen=True)
class Supervision(Objective):
    """Predict the labels, and attend to the words that decide: cross entropy + λ · KL(ρ ‖ α), in
    nats, ρ the same weight on every word of the rationale; 0 for a text without one (Zhong et al.
    2019, *Fine-grained Sentiment Analysis with Faithful Attention*; λ is `weight`). It makes the
    attention right; whether the model decides by these words is for its counterfactuals to say."""

    weight: NotNegative = 1.0

    def __call__(
        self, outputs: Outputs, batch: Batch, task: Task, class_weight: ClassWeight
    ) -> Losses:
        """`loss`; `mass`, the attention on the rationale, 0 to 1, and `kl`, in nats."""
        marked = marked_words(outputs, batch, "training=finetune_supervise").to(
            outputs.attention.dtype
        )
        wanted = marked / marked.sum(-1, keepdim=True).clamp_min(1)
        kl = kullback_leibler(wanted, outputs.attention, outputs.content)
        entropy = CrossEntropy()(outputs, batch, task, class_weight)["loss"]
        mass = (outputs.attention * marked).sum(-1).detach()
        return {"loss": entropy + self.weight * kl, "kl": kl, "mass": mass}


@dataclass(frozen=True)
class CoinFlips(Objective):
    """Cross entropy of labels that a coin decided, once for each example, all classes equally
    likely: there is nothing to be learnt (Zhang et al. 2017; the data randomisation test of Adebayo
    et al. 2018, section 3.4, permutes the labels)."""

    def __call__(
        self, outputs: Outputs, batch: Batch, task: Task, class_weight: ClassWeight
    ) -> Losses:
        classes = torch.arange(outputs.logits.shape[-1], device=batch.example_id.device)
        drawn = noise(batch.example_id.unsqueeze(-1), classes)
        labels = (
            (drawn > 0).to(batch.labels.dtype) if task is Task.MULTI_LABEL else drawn.argmax(-1)
        )
        return CrossEntropy()(outputs, replace(batch, labels=labels), task, class_weight)


@dataclass(frozen=True)
class MaskedWords(CrossEntropy):
    """Cross entropy of texts some of whose words are masked, so that a masked text is like those of
    the training: a `share` of the texts, 0 to 1, loses words, each a share of its own, drawn evenly
    from 0 to 1 (Madsen et al. 2023)."""

    share: Portion = 0.5

    def given(self, model: Model, batch: Batch) -> Batch:
        device = batch.ids.device
        chosen, rate = (torch.rand(len(batch), 1, device=device) for _ in range(2))
        gone = (
            (torch.rand(batch.ids.shape, device=device) < rate)
            & (chosen < self.share)
            & batch.content
        )
        return model.masked(batch, gone)
