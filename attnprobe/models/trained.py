"""How a model is trained, validated and tested, whatever it consists of."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jaxtyping import Float
from lightning import LightningModule
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.oom_retry import Halving
from attnprobe.data.batching import TextSplit
from attnprobe.data.data_warnings import Check
from attnprobe.data.module import TextDataModule
from attnprobe.data.pieces import PieceReader
from attnprobe.models.base import Model, build
from attnprobe.models.performance import Performance
from attnprobe.models.recipe import Recipe


class TrainedModel(Model, LightningModule):
    """A model, and the steps of its training.

    Args:
        classes: number of classes (or labels of a multi-label task), at least 2.
        task: one class per text, or any subset of the labels.
        class_weight: weight of each class in the loss (multi-label: of each label's positives), or
            None.
        recipe: how to train; None for a model that is only read.

    Raises:
        UserError: fewer than 2 classes, or a recipe that does not fit the task.
    """

    class_weight: Tensor | None
    reader: PieceReader | None = None
    """What cuts words into pieces, where the model reads pieces."""
    class_names: Sequence[str] = ()
    """The data's classes and those that the model knows besides; `matched` says which is which."""
    matched: str = ""
    facts: dict[str, Any]
    """What the manifest says about this model in addition to its settings."""

    def __init__(
        self,
        classes: int,
        task: Task,
        class_weight: Float[Tensor, "classes"] | None,
        recipe: Recipe | None,
    ) -> None:
        super().__init__()
        if classes < 2:
            raise UserError(
                f"a classifier needs at least 2 classes, got {classes}: check data.label and "
                f"data.labels"
            )
        if recipe is not None:
            check_recipe(recipe, task)
        self.task = task
        self.classes = classes
        self.recipe = recipe
        self.register_buffer("class_weight", class_weight, persistent=False)
        self.validation_performance = Performance(task, classes)
        self.test_performance = Performance(task, classes)
        self.halving = Halving()
        self.facts = {}

    def check_reading(self, part: TextSplit) -> list[Check]:
        """What there is to say about how a split's texts are read, once its pieces are known."""
        return []

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Float[Tensor, "batch"]]:
        """The recipe's loss per example, and its parts."""
        assert self.recipe is not None
        return self.recipe.objective(outputs, batch, self.task, self.class_weight)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One step's loss, summed or averaged over the batch by the recipe."""
        assert self.recipe is not None
        outputs = self(self.recipe.objective.given(self, batch))
        loss = self.losses(outputs, batch)["loss"]
        mean = loss.detach().mean()
        self.log(
            "train/loss",
            mean,
            on_step=False,
            on_epoch=True,
            batch_size=len(batch),
            sync_dist=True,
        )
        return loss.sum() if self.recipe.reduction == "sum" else loss.mean()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Add a batch to the validation metrics, and log its losses."""
        outputs = self(batch)
        self.validation_performance.update(probabilities(outputs.logits, self.task), batch)
        for name, values in self.losses(outputs, batch).items():
            self.log(
                f"validation/{name}",
                values.mean(),
                on_step=False,
                on_epoch=True,
                batch_size=len(batch),
                sync_dist=True,
            )

    def on_validation_epoch_end(self) -> None:
        """Log the validation metrics, and the one that chooses the epoch."""
        values = self.validation_performance.compute()
        for number, value in enumerate(values.pop("f1")):
            self.log(f"validation/f1_{number}", value)
        self.log_dict({f"validation/{name}": value for name, value in values.items()})
        if self.recipe is None or self.trainer.sanity_checking:
            return
        if self.recipe.selection_metric == "loss":
            selection = -self.trainer.callback_metrics["validation/loss"]
        else:
            selection = values[self.recipe.selection_metric]
            if selection.isnan():
                raise UserError(
                    f"training.recipe.selection_metric={self.recipe.selection_metric} is undefined "
                    "on the validation texts, of which all or none have the class that it ranks: "
                    "it cannot choose an epoch. Give validation texts of every class, or set "
                    "training.recipe.selection_metric=loss"
                )
        # for callbacks alone: the logger has the number under its own name
        self.log("validation/selection", selection, logger=False)

    def predict_step(self, batch: Batch, batch_idx: int = 0, dataloader_idx: int = 0) -> Outputs:
        """Run the model on as many examples at a time as fit into memory."""
        return self.predict(batch)

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Outputs]:
        """Run the model on one batch for the probes, which listen to the test loop.

        Whatever the trainer's precision, the outputs are in that of the examination.
        """
        with self.precisely():
            outputs = self.predict(batch)
        self.test_performance.update(probabilities(outputs.logits, self.task), batch)
        return {"outputs": outputs}

    def on_test_epoch_end(self) -> None:
        """Log the metrics of the test split."""
        values = self.test_performance.compute()
        for number, value in enumerate(values.pop("f1")):
            self.log(f"test/f1_{number}", value, sync_dist=True)
        self.log_dict({f"test/{name}": value for name, value in values.items()}, sync_dist=True)

    def setup(self, stage: str) -> None:
        """Let a data module of anybody's trainer cut its texts into the pieces that this reads."""
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        if not isinstance(data, TextDataModule) or self.reader is None:
            return
        if data.pipeline.pieces is not self.reader:
            data.take_classes(self.class_names, self.matched)
            self.look_at(data)

    def look_at(self, data: TextDataModule) -> None:
        """Cut a data set into this model's pieces, and learn from it what must be known of it.

        Args:
            data: set up; it gets the pieces, and what there is to say about how they are read.

        Raises:
            UserError: the model cannot be examined on these texts.
        """
        if self.reader is not None:
            data.read_pieces(self.reader)
        test = data.splits["test"]
        self.prepare(test.sample())
        data.checks += self.check_reading(test)
        note = self.read_texts(data.loader("test"))
        if note:
            data.notes += (note,)

    def read_texts(self, batches: Iterable[Batch]) -> str:
        """Learn from all texts that the model is examined on what it must know about them.

        Returns:
            A sentence that says what was learnt; empty: nothing.
        """
        return ""

    def prepare(self, batch: Batch) -> None:
        """Called before anything is trained, with a few texts of different lengths.

        Raises:
            UserError: the model cannot be examined.
        """

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The optimizer's parameter groups; `attention` has a weight decay of its own."""
        assert self.recipe is not None
        attention: list[Tensor] = []
        rest: list[Tensor] = []
        for name, parameter in self.named_parameters():
            if parameter.requires_grad:
                group = attention if name.startswith("attention.") else rest
                group.append(parameter)
        if not attention:
            return [{"params": rest}]

        attention_group: dict[str, Any] = {"params": attention}
        if self.recipe.attention_weight_decay is not None:
            attention_group["weight_decay"] = self.recipe.attention_weight_decay
        return [{"params": rest}, attention_group]

    def configure_optimizers(self) -> Any:
        """Build the recipe's optimizer, and its warm-up or its scheduler."""
        assert self.recipe is not None
        optimizer = build(
            "training.recipe.optimizer",
            self.recipe.optimizer,
            self.parameter_groups(),
        )
        if self.recipe.warmup is not None:
            steps = int(self.trainer.estimated_stepping_batches)
            schedule = LambdaLR(optimizer, warmup_factor(self.recipe.warmup, steps))
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": schedule, "interval": "step"},
            }
        if self.recipe.scheduler is None:
            return optimizer
        scheduler = build("training.recipe.scheduler", self.recipe.scheduler, optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "validation/selection"},
        }


def without_decay_of_vectors(group: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Two groups of parameters for one: matrices as it says, and vectors without weight decay.

    Vectors are biases, and the scales of normalisations.
    """
    matrices = [parameter for parameter in group["params"] if parameter.ndim > 1]
    vectors = [parameter for parameter in group["params"] if parameter.ndim <= 1]
    return [{**group, "params": matrices}, {**group, "params": vectors, "weight_decay": 0.0}]


def check_recipe(recipe: Recipe, task: Task) -> None:
    """Refuse a recipe that does not fit the task.

    It may choose the epoch by a metric that is not measured in this task, or change the learning
    rate in two ways.
    """
    labels = "one class per text"
    unmeasured = ["exact_match", "label_accuracy"]
    remedy = "accuracy"
    if task is Task.MULTI_LABEL:
        labels = "several labels per text"
        unmeasured = ["accuracy"]
        remedy = "exact_match (or label_accuracy, f1_macro)"
    if recipe.selection_metric in unmeasured:
        raise UserError(
            f"training.recipe.selection_metric={recipe.selection_metric} is not measured where the "
            f"data have {labels}: set training.recipe.selection_metric={remedy}"
        )
    if recipe.warmup is not None and recipe.scheduler is not None:
        raise UserError(f"training.recipe.warmup={recipe.warmup}: expected no scheduler beside it")


def warmup_factor(share: float, steps: int) -> Callable[[int], float]:
    """The learning rate at each step, as a factor of the largest.

    Args:
        share: the share of the steps in which it rises from 0; in the rest it falls to 0, both
            linearly.
        steps: number of steps.
    """
    rising = share * steps
    falling = max(1.0, steps - rising)

    def factor(step: int) -> float:
        if step < rising:
            return step / rising
        return max(0.0, (steps - step) / falling)

    return factor
