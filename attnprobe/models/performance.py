"""How well a classifier classifies: torchmetrics, chosen by the task."""

import warnings
from dataclasses import replace
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn
from torchmetrics import MetricCollection
from torchmetrics import classification as tm

from attnprobe.core.batch import Task
from attnprobe.core.metrics import COUNT, SCORE, SHARE, Metric, Scale

ONE_CLASS = "one class per text"
SEVERAL_LABELS = "several labels per text"
PARTS = "objectives of several parts, such as `training=adversary`"
PERFORMANCE = (
    Metric("accuracy", SHARE, "right decisions", only=ONE_CLASS),
    Metric(
        "exact_match",
        SHARE,
        "texts with all labels right; its interval is over the texts",
        only=SEVERAL_LABELS,
    ),
    Metric(
        "label_accuracy",
        SHARE,
        "right decisions among all labels of all texts. It has no interval: the decisions on one "
        "text belong together",
        only=SEVERAL_LABELS,
    ),
    Metric("f1", SCORE, "F1 of each class", step="class"),
    Metric("f1_macro", SCORE, "their mean"),
    Metric(
        "roc_auc",
        SCORE,
        "area under the ROC curve of class 1; more than two classes: mean over "
        "one-against-the-rest",
    ),
    Metric("pr_auc", SCORE, "area under the precision-recall curve, likewise"),
    Metric("examples", COUNT, "test examples"),
)
"""The metrics of the table `performance`, each one number about the whole split."""
LOSS = Scale("unit of the loss")
TRAINING = (
    Metric("train_loss", LOSS, "the loss that is minimised", step="epoch"),
    Metric("validation_loss", LOSS, "the same on the validation split", step="epoch"),
    Metric(
        "train_{part}",
        LOSS,
        "a part of the loss, such as `tvd` and `kl`",
        step="epoch",
        only=PARTS,
    ),
    Metric("validation_{part}", LOSS, "the same on the validation split", step="epoch", only=PARTS),
    Metric("validation_f1_{class}", SCORE, "`f1` of a class, by its number", step="epoch"),
    *(
        replace(
            metric,
            name=f"validation_{metric.name}",
            about=f"`{metric.name}` on the validation split",
            step="epoch",
        )
        for metric in PERFORMANCE
        if metric.name not in ("f1", "examples")
    ),
)
"""The metrics of the table `training`, by epoch."""


class Performance(nn.Module):
    """The metrics of one split, each between 0 and 1; higher is better.

    With two classes the areas under the curves are those of class 1. With more they are macro
    averages over one-against-the-rest, over the classes that occur (where any word of a vocabulary
    may be the answer, most do not).
    """

    def __init__(self, task: Task, classes: int) -> None:
        super().__init__()
        # with two exclusive classes the curves are drawn from the probability of class 1 alone
        self.positive_only = classes == 2 and task is not Task.MULTI_LABEL
        self.scored = task is Task.SCORE

        kind: dict[str, Any] = {"task": "multiclass", "num_classes": classes}
        if task is Task.MULTI_LABEL:
            kind = {"task": "multilabel", "num_labels": classes}
        accuracy = tm.Accuracy(**kind, average="micro")
        decisions: dict[str, Any] = {"accuracy": accuracy}
        if task is Task.MULTI_LABEL:
            decisions = {
                "exact_match": tm.MultilabelExactMatch(classes),
                "label_accuracy": accuracy,
            }
        decisions["f1"] = tm.F1Score(**kind, average="none")

        curve = {"task": "binary"} if self.positive_only else kind
        curves: dict[str, Any] = {
            "roc_auc": tm.AUROC(**curve),
            "pr_auc": tm.AveragePrecision(**curve),
        }
        # no groups: the states of these metrics are of different kinds
        self.decisions = MetricCollection(decisions, compute_groups=False)
        self.curves = MetricCollection(curves, compute_groups=False)

    def update(self, probability: Float[Tensor, "batch classes"], labels: Tensor) -> None:
        """Add one batch; `labels` as in `Batch`."""
        probability = probability.detach().float()
        labels = labels.long()
        if self.scored:
            # curves depend on the order alone, and torchmetrics expects numbers from 0 to 1
            probability = probability.softmax(-1)
        self.decisions.update(probability, labels)
        self.curves.update(probability[:, 1] if self.positive_only else probability, labels)

    def compute(self) -> dict[str, Tensor]:
        """Compute the metrics of all batches since the last call.

        Returns:
            `accuracy` (or `exact_match` and `label_accuracy`), `f1` (one per class), `f1_macro`,
            `roc_auc` and `pr_auc`.
        """
        # torchmetrics warns each time that a class which does not occur has no area
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*Ignoring these classes in macro-average.*")
            warnings.filterwarnings("ignore", "No positive samples in targets.*")
            result: dict[str, Tensor] = {**self.decisions.compute(), **self.curves.compute()}
        result["f1_macro"] = result["f1"].mean()
        self.decisions.reset()
        self.curves.reset()
        return result
