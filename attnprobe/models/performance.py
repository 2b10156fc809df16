"""How well a classifier classifies: torchmetrics, chosen by the task."""

from jaxtyping import Float
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics import classification as tm

from attnprobe.batch import Task


class Performance(nn.Module):
    """Accuracy, F1 per class and macro, area under the ROC and the precision-recall curve, over one split.

    All are between 0 and 1, higher is better. With two classes the areas are those of class 1, with more they are
    macro averages over one-against-the-rest; multi-label accuracy is the share of right label decisions.
    """

    def __init__(self, task: Task, classes: int) -> None:
        super().__init__()
        self.task, self.classes = task, classes
        multi_label, binary = task is Task.MULTI_LABEL, classes == 2 and task is Task.SINGLE_LABEL
        self.positive_only = binary
        decisions: dict[str, Metric]
        curves: dict[str, Metric]
        if multi_label:
            decisions = {"accuracy": tm.MultilabelAccuracy(classes, average="micro"),
                         "f1": tm.MultilabelF1Score(classes, average="none")}
            curves = {"roc_auc": tm.MultilabelAUROC(classes), "pr_auc": tm.MultilabelAveragePrecision(classes)}
        else:
            decisions = {"accuracy": tm.MulticlassAccuracy(classes, average="micro"),
                         "f1": tm.MulticlassF1Score(classes, average="none")}
            curves = (
                {"roc_auc": tm.BinaryAUROC(), "pr_auc": tm.BinaryAveragePrecision()} if binary
                else {"roc_auc": tm.MulticlassAUROC(classes), "pr_auc": tm.MulticlassAveragePrecision(classes)}
            )
        self.decisions, self.curves = nn.ModuleDict(decisions), nn.ModuleDict(curves)

    def update(self, probability: Float[Tensor, "batch classes"], labels: Tensor) -> None:
        """Take in one batch; `labels` as in `Batch`."""
        probability, labels = probability.detach().float(), labels.long()
        for metric in self.decisions.values():
            metric.update(probability, labels)
        for metric in self.curves.values():
            metric.update(probability[:, 1] if self.positive_only else probability, labels)

    def compute(self) -> dict[str, Tensor]:
        """`accuracy`, `f1` (one number per class), `f1_macro`, `roc_auc`, `pr_auc`."""
        result = {name: metric.compute() for name, metric in [*self.decisions.items(), *self.curves.items()]}
        result["f1_macro"] = result["f1"].mean()
        return result

    def reset(self) -> None:
        """Forget what was taken in."""
        for metric in [*self.decisions.values(), *self.curves.values()]:
            metric.reset()
