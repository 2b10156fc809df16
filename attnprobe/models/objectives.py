"""Training objectives: one loss per example, and the parts that it consists of."""

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
    """A loss."""

    settings_place: ClassVar[str] = "training.recipe.objective"

    taught: ClassVar[bool] = False
    """It reads a teacher's predictions and attention from the batch."""

    def given(self, model: Model, batch: Batch) -> Batch:
        """The batch that the model reads in training, in place of this one."""
        return batch

    @abstractmethod
    def __call__(
        self,
        outputs: Outputs,
        batch: Batch,
        task: Task,
        class_weight: ClassWeight,
    ) -> Losses:
        """Compute `loss` per example, and its parts by name, for the training curves."""


@dataclass(frozen=True)
class CrossEntropy(Objective):
    """Cross entropy of the labels in nats, times the weight of the class.

    Of a multi-label task it is the mean over the labels, each label's positives times its weight.
    """

    def __call__(
        self,
        outputs: Outputs,
        batch: Batch,
        task: Task,
        class_weight: ClassWeight,
    ) -> Losses:
        """Compute `loss`, the cross entropy."""
        logits = outputs.logits
        labels = batch.labels
        if task is Task.MULTI_LABEL:
            targets = labels.to(logits.dtype)
            losses = F.binary_cross_entropy_with_logits(
                logits,
                targets,
                pos_weight=class_weight,
                reduction="none",
            )
            return {"loss": losses.mean(-1)}
        return {"loss": F.cross_entropy(logits, labels, weight=class_weight, reduction="none")}


@dataclass(frozen=True)
class Divergence(Objective):
    """Predict as the teacher does, and attend to something else: TVD(ŷ, ŷ_t) − λ · KL(α ‖ α_t).

    Wiegreffe & Pinter 2019, section 4; λ is `weight`. The distance lies between 0 and 1, the
    divergence is in nats. With λ = 0 it is plain distillation of the predictions. The labels are
    never read.

    Note:
        The released code takes half the distance where there are two classes, takes the logarithm
        of padding, and weights the whole batch by the sum of its class weights. Here every example
        counts once, and only words count.
    """

    weight: NotNegative
    taught: ClassVar[bool] = True

    def __call__(
        self,
        outputs: Outputs,
        batch: Batch,
        task: Task,
        class_weight: ClassWeight,
    ) -> Losses:
        """Compute `loss`, and `tvd` (0 to 1), `kl` and `jsd` (nats) of the same examples."""
        if batch.teacher_probability is None or batch.teacher_attention is None:
            raise UserError(
                "this objective follows a teacher: name a finished run with teacher=PATH, or "
                "teacher=auto"
            )
        probability = probabilities(outputs.logits, task)
        teacher_probability = batch.teacher_probability.to(probability.dtype)
        tvd = prediction_distance(probability, teacher_probability, task)

        teacher = batch.teacher_attention.to(outputs.attention.dtype)
        kl = kullback_leibler(outputs.attention, teacher, outputs.content)
        jsd = jensen_shannon(outputs.attention.detach(), teacher, outputs.content)
        return {"loss": tvd - self.weight * kl, "tvd": tvd, "kl": kl, "jsd": jsd}


def marked_words(outputs: Outputs, batch: Batch, training: str) -> Bool[Tensor, "batch seq"]:
    """The words that decide; a UserError where the data do not mark them.

    Args:
        outputs: the model's outputs, whose attention must be over words.
        batch: the texts.
        training: the setting that needs these words, for the message.
    """
    if batch.rationale is None or batch.rationale.shape != outputs.attention.shape:
        raise UserError(
            f"{training} says where the attention goes by the rationale: it needs data that mark "
            f"one (data.rationale, or data.plant=token) and a model that attends to words"
        )
    return batch.rationale & outputs.content


@dataclass(frozen=True)
class Deception(Objective):
    """Predict the labels, and keep the attention off the words that decide.

    Cross entropy − λ · ln(1 − Σ α_t over the rationale) (Pruthi et al. 2020, *Learning to Deceive
    with Attention-Based Explanations*, section 3). λ is `weight`; the paper takes 0.1 and 1.
    """

    weight: NotNegative = 1.0

    def __call__(
        self,
        outputs: Outputs,
        batch: Batch,
        task: Task,
        class_weight: ClassWeight,
    ) -> Losses:
        """Compute `loss`, and `mass`: the attention on the rationale, 0 to 1."""
        marked = marked_words(outputs, batch, "training=deceive")
        mass = (outputs.attention * marked).sum(-1)
        # rounding may put all of the mass on the rationale; ln 0 has no gradient
        penalty = -(1 - mass).clamp(min=1e-6).log()
        entropy = CrossEntropy()(outputs, batch, task, class_weight)["loss"]
        return {"loss": entropy + self.weight * penalty, "mass": mass.detach()}


@dataclass(frozen=True)
class Supervision(Objective):
    """Predict the labels, and attend to the words that decide: cross entropy + λ · KL(ρ ‖ α).

    Zhong et al. 2019, *Fine-grained Sentiment Analysis with Faithful Attention*. ρ gives the same
    weight to every word of the rationale; λ is `weight`; the divergence is in nats, and 0 for a
    text without a rationale. It makes the attention right; whether the model decides by these words
    is for its counterfactuals to say.
    """

    weight: NotNegative = 1.0

    def __call__(
        self,
        outputs: Outputs,
        batch: Batch,
        task: Task,
        class_weight: ClassWeight,
    ) -> Losses:
        """Compute `loss`; `mass`, the attention on the rationale, 0 to 1; and `kl`, in nats."""
        marked = marked_words(outputs, batch, "training=finetune_supervise")
        marked = marked.to(outputs.attention.dtype)
        target = marked / marked.sum(-1, keepdim=True).clamp_min(1)
        kl = kullback_leibler(target, outputs.attention, outputs.content)
        entropy = CrossEntropy()(outputs, batch, task, class_weight)["loss"]
        mass = (outputs.attention * marked).sum(-1).detach()
        return {"loss": entropy + self.weight * kl, "kl": kl, "mass": mass}


@dataclass(frozen=True)
class CoinFlips(Objective):
    """Cross entropy of random labels: there is nothing to be learnt.

    A coin decides the label of each example once, all classes being equally likely (Zhang et al.
    2017; the data randomisation test of Adebayo et al. 2018, section 3.4, permutes the labels).
    """

    def __call__(
        self,
        outputs: Outputs,
        batch: Batch,
        task: Task,
        class_weight: ClassWeight,
    ) -> Losses:
        """Compute `loss`, the cross entropy of the coin's labels."""
        classes = torch.arange(outputs.logits.shape[-1], device=batch.example_id.device)
        draw = noise(batch.example_id.unsqueeze(-1), classes)
        labels = draw.argmax(-1)
        if task is Task.MULTI_LABEL:
            labels = (draw > 0).to(batch.labels.dtype)
        return CrossEntropy()(outputs, replace(batch, labels=labels), task, class_weight)


@dataclass(frozen=True)
class MaskedWords(CrossEntropy):
    """Cross entropy of texts with masked words, so that masked texts resemble the training's.

    Madsen et al. 2023.

    A `share` of the texts loses words; the share of its words that a text loses is drawn evenly
    from 0 to 1.
    """

    share: Portion = 0.5

    def given(self, model: Model, batch: Batch) -> Batch:
        """The batch with masked words."""
        device = batch.ids.device
        is_masked_text = torch.rand(len(batch), 1, device=device) < self.share
        rate = torch.rand(len(batch), 1, device=device)
        is_drawn_word = torch.rand(batch.ids.shape, device=device) < rate
        return model.masked(batch, is_drawn_word & is_masked_text & batch.content)
