"""How a model is trained: the recipe of the settings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch

from attnprobe.core.settings import Checked, Dropout, NotNegative, Whole
from attnprobe.models.objectives import CrossEntropy, Objective


@dataclass(frozen=True)
class Recipe(metaclass=Checked):
    """How to train.

    Jain & Wallace: Adam with amsgrad, 1e-3, weight decay 1e-5 but none on the attention, the loss
    summed over the batch, best epoch by ROC-AUC on the validation split, the first epoch excluded.

    Attributes:
        optimizer: parameter groups → optimizer.
        attention_weight_decay: replaces the optimizer's weight decay for the attention's
            parameters; None keeps it.
        reduction: "sum" or "mean" of the loss over the batch.
        objective: the loss per example: the cross entropy of the labels, or the distance to a
            teacher.
        selection_metric: the validation metric whose best epoch is kept: `accuracy`, of several
            labels `exact_match` or `label_accuracy`; `f1_macro`, `roc_auc`, `pr_auc`; `loss`: the
            objective's lowest.
        skip_epochs: epochs at the start that are never chosen (unless there are no others).
        warmup: the learning rate rises from 0 in this share of all steps and then falls to 0, both
            linearly; None: neither. It excludes a scheduler.
        scheduler: optimizer → learning-rate scheduler stepped per epoch on the selection metric, or
            None.
    """

    settings_place: ClassVar[str] = "training.recipe"

    optimizer: Callable[..., torch.optim.Optimizer]
    attention_weight_decay: NotNegative | None = 0.0
    reduction: Literal["sum", "mean"] = "sum"
    selection_metric: Literal[
        "accuracy", "exact_match", "label_accuracy", "f1_macro", "roc_auc", "pr_auc", "loss"
    ] = "roc_auc"
    skip_epochs: Whole = 1
    scheduler: Callable[..., torch.optim.lr_scheduler.ReduceLROnPlateau] | None = None
    objective: Objective = field(default_factory=CrossEntropy)
    warmup: Dropout | None = None
