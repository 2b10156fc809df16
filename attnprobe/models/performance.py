"""How well a classifier classifies: torchmetrics, chosen by the task."""

import warnings
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchmetrics import CatMetric, MetricCollection
from torchmetrics import classification as tm
from torchmetrics.functional.classification import binary_f1_score
from torchmetrics.retrieval import RetrievalPrecision, RetrievalRPrecision

from attnprobe.core.batch import Batch, Task
from attnprobe.core.metrics import COUNT, SCORE, SHARE, Metric, Scale

ONE_CLASS = "one class per text"
SEVERAL_LABELS = "several labels per text"
ASKED_LABELS = "a row asks for one label of a text (`task=labels`)"
TOP = 5
"""Labels of a text that its precision is taken of."""
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
    Metric(
        "f1",
        SCORE,
        "F1 of each class; undefined of one that no text has and that none is given",
        step="class",
    ),
    Metric("f1_macro", SCORE, "their mean"),
    Metric(
        "roc_auc",
        SCORE,
        "area under the ROC curve of class 1; more than two classes: mean over "
        "one-against-the-rest, of the classes that some texts have and others have not",
    ),
    Metric(
        "pr_auc",
        SCORE,
        "area under the precision-recall curve, likewise of the classes that some text has",
    ),
    Metric(
        "label_f1_macro",
        SCORE,
        "mean F1 of the labels that some text has, each over the texts that it is asked of",
        only=ASKED_LABELS,
    ),
    Metric("label_f1_micro", SCORE, "F1 of a yes, over all rows", only=ASKED_LABELS),
    Metric(
        f"precision_at_{TOP}",
        SHARE,
        f"how many of a text's {TOP} likeliest labels, of those that are asked, it has; mean of "
        "the texts",
        only=ASKED_LABELS,
    ),
    Metric(
        "r_precision",
        SHARE,
        "the same of as many labels as the text has; mean of the texts that have any",
        only=ASKED_LABELS,
    ),
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
    averages over one-against-the-rest. A class that the texts do not show has no F1 and no area,
    and counts for no mean: where any word of a vocabulary may be the answer, that is most of them.

    Args:
        task: how the predictions are to be read.
        classes: their number.
        of_all_devices: the numbers are of what all devices saw; False: of this one's.
    """

    def __init__(self, task: Task, classes: int, *, of_all_devices: bool = True) -> None:
        super().__init__()
        # with two exclusive classes the curves are drawn from the probability of class 1 alone
        self.positive_only = classes == 2 and task is not Task.MULTI_LABEL
        self.scored = task is Task.SCORE

        kind: dict[str, Any] = {"task": "multiclass", "num_classes": classes}
        if task is Task.MULTI_LABEL:
            kind = {"task": "multilabel", "num_labels": classes}
        kind["sync_on_compute"] = of_all_devices
        accuracy = tm.Accuracy(**kind, average="micro")
        decisions: dict[str, Any] = {"accuracy": accuracy}
        if task is Task.MULTI_LABEL:
            decisions = {
                "exact_match": tm.MultilabelExactMatch(classes, sync_on_compute=of_all_devices),
                "label_accuracy": accuracy,
            }
        # of each class: true and false positives, true and false negatives, and texts that have it
        decisions["counts"] = tm.StatScores(**kind, average="none")

        curve = kind | {"average": "none"}
        if self.positive_only:
            curve = {"task": "binary", "sync_on_compute": of_all_devices}
        curves: dict[str, Any] = {
            "roc_auc": tm.AUROC(**curve),
            "pr_auc": tm.AveragePrecision(**curve),
        }
        # no groups: the states of these metrics are of different kinds
        self.decisions = MetricCollection(decisions, compute_groups=False)
        self.curves = MetricCollection(curves, compute_groups=False)
        self.asked_labels = AskedLabels(of_all_devices=of_all_devices)

    def update(self, probability: Float[Tensor, "batch classes"], batch: Batch) -> None:
        """Add the predictions of one batch."""
        # a label's name is the word between the markers
        asked = None if batch.question is None else batch.question[:, 1]
        self.add(probability, batch.labels, asked, batch.text_number)

    def add(
        self,
        probability: Float[Tensor, "batch classes"],
        labels: Tensor,
        asked: Tensor | None = None,
        text_number: Tensor | None = None,
    ) -> None:
        """Add predictions.

        Args:
            probability: of the classes.
            labels: as `Batch.labels`.
            asked: number of the label that each row asks for, where rows do.
            text_number: as `Batch.text_number`.
        """
        probability = probability.detach().float()
        labels = labels.long()
        if text_number is not None and asked is not None:
            self.asked_labels.update(probability[:, 1], labels, asked, text_number)
        if self.scored:
            # curves depend on the order alone, and torchmetrics expects numbers from 0 to 1
            probability = probability.softmax(-1)
        self.decisions.update(probability, labels)
        self.curves.update(probability[:, 1] if self.positive_only else probability, labels)

    def compute(self) -> dict[str, Tensor]:
        """Compute the metrics of all batches since the last call.

        Returns:
            `accuracy` (or `exact_match` and `label_accuracy`), `f1` (one per class), `f1_macro`,
            `roc_auc` and `pr_auc`; where rows ask for labels, those of `AskedLabels`. NaN is what
            the texts do not show.
        """
        result: dict[str, Tensor] = self.decisions.compute()
        true_positive, false_positive, true_negative, false_negative, has_class = result.pop(
            "counts"
        ).unbind(-1)
        result["f1"] = 2 * true_positive / (2 * true_positive + false_positive + false_negative)
        result["f1_macro"] = result["f1"].nanmean()

        # torchmetrics warns, and gives 0, where no text or every text has a class
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No (positive|negative) samples .*")
            areas = self.curves.compute()
        is_shown = has_class > 0
        is_ranked = is_shown & (true_negative + false_positive > 0)
        if self.positive_only:
            is_shown = is_shown[1]
            is_ranked = is_ranked[1]
        result["roc_auc"] = areas["roc_auc"].where(is_ranked, torch.nan).nanmean()
        result["pr_auc"] = areas["pr_auc"].where(is_shown, torch.nan).nanmean()
        if self.asked_labels.has_rows:
            result |= self.asked_labels.compute()
        self.decisions.reset()
        self.curves.reset()
        self.asked_labels.reset()
        return result


class AskedLabels(nn.Module):
    """The metrics of texts with any number of labels, of rows that ask for one label each.

    Of a text that is not asked for all labels they are those of the labels that it is asked for.
    """

    def __init__(self, *, of_all_devices: bool = True) -> None:
        super().__init__()
        options: dict[str, Any] = {"sync_on_compute": of_all_devices}
        self.label = CatMetric(**options)
        self.probability = CatMetric(**options)
        self.answer = CatMetric(**options)
        ranked: dict[str, Any] = {
            # a text without labels has a precision of 0, and no R-precision
            f"precision_at_{TOP}": RetrievalPrecision(
                empty_target_action="neg", top_k=TOP, **options
            ),
            "r_precision": RetrievalRPrecision(empty_target_action="skip", **options),
        }
        self.ranked = MetricCollection(ranked, compute_groups=False)

    @property
    def has_rows(self) -> bool:
        """Whether any row was added since the last `reset`."""
        return self.label.update_called

    def update(
        self,
        probability: Float[Tensor, "batch"],
        answer: Int[Tensor, "batch"],
        label: Int[Tensor, "batch"],
        text: Int[Tensor, "batch"],
    ) -> None:
        """Add the rows of one batch.

        Args:
            probability: of a yes.
            answer: 1 where the text has the label, else 0.
            label: number of the label that is asked for.
            text: number of the text, within the split.
        """
        self.label.update(label)
        self.probability.update(probability)
        self.answer.update(answer)
        self.ranked.update(probability, answer, indexes=text)

    def compute(self) -> dict[str, Tensor]:
        """Both F1, the precision of the likeliest labels, and R-precision, by metric."""
        label = self.label.compute()
        probability = self.probability.compute()
        answer = self.answer.compute().long()
        scores = []
        for number in label[answer == 1].unique():
            is_asked = label == number
            scores.append(binary_f1_score(probability[is_asked], answer[is_asked]))
        return {
            "label_f1_macro": torch.stack(scores).mean() if scores else torch.tensor(0.0),
            "label_f1_micro": binary_f1_score(probability, answer),
            **self.ranked.compute(),
        }

    def reset(self) -> None:
        """Forget all rows."""
        for metric in (self.label, self.probability, self.answer, self.ranked):
            metric.reset()
