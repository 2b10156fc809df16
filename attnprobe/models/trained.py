"""How a model is trained, validated and tested, whatever it consists of."""

from collections.abc import Iterable, Sequence
from typing import Any

from jaxtyping import Float
from lightning import LightningModule
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.errors import UserError
from attnprobe.core.oom_retry import Halving
from attnprobe.data.pieces import PieceReader
from attnprobe.models.base import Model, build
from attnprobe.models.performance import Performance
from attnprobe.models.recipe import Recipe


class TrainedModel(Model, LightningModule):
    """A model with the steps of its training.

    Args:
        classes: number of classes (or labels of a multi-label task), at least 2.
        task: one class per text, or any subset of the labels.
        class_weight: weight of each class in the loss (multi-label: of each label's positives), or
            None.
        recipe: how to train; None for a model that is only read.
    """

    class_weight: Tensor | None
    reader: PieceReader | None = None
    """What cuts words into pieces, where the model reads pieces."""
    class_names: Sequence[str] = ()
    """The data's classes and those that the model knows besides; `matched` says which is which."""
    matched: str = ""
    facts: dict[str, Any]
    """What the manifest should say about this model, in addition to its settings."""

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
                f"a classifier needs at least 2 classes, got {classes}: check data.label and data.labels"
            )
        unmeasured = ["exact_match", "label_accuracy"]
        of_task = "one class per text"
        instead = "accuracy"
        if task is Task.MULTI_LABEL:
            unmeasured = ["accuracy"]
            of_task = "several labels per text"
            instead = "exact_match (or label_accuracy, f1_macro)"
        if recipe is not None and recipe.selection_metric in unmeasured:
            raise UserError(
                f"training.recipe.selection_metric={recipe.selection_metric} is not measured where the data have {of_task}: "
                f"set training.recipe.selection_metric={instead}"
            )
        if recipe is not None and recipe.warmup is not None and recipe.scheduler is not None:
            raise UserError(
                f"training.recipe.warmup={recipe.warmup}: expected no scheduler beside it"
            )
        self.task = task
        self.classes = classes
        self.recipe = recipe
        self.register_buffer("class_weight", class_weight, persistent=False)
        self.validation_performance = Performance(task, classes)
        self.test_performance = Performance(task, classes)
        self.performance: dict[str, Tensor] = {}
        self.halving = Halving()
        self.facts = {}

    def losses(self, outputs: Outputs, batch: Batch) -> dict[str, Float[Tensor, "batch"]]:
        assert self.recipe is not None
        return self.recipe.objective(outputs, batch, self.task, self.class_weight)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """One step's loss, summed or averaged over the batch by the recipe."""
        assert self.recipe is not None
        loss = self.losses(self(self.recipe.objective.given(self, batch)), batch)["loss"]
        mean = loss.detach().mean()
        self.log(
            "train/loss", mean, on_step=False, on_epoch=True, batch_size=len(batch), sync_dist=True
        )
        return loss.sum() if self.recipe.reduction == "sum" else loss.mean()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        outputs = self(batch)
        self.validation_performance.update(probabilities(outputs.logits, self.task), batch.labels)
        for name, values in self.losses(outputs, batch).items():
            mean = values.mean()
            self.log(
                f"validation/{name}",
                mean,
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
        name = self.recipe.selection_metric
        chosen = (
            -self.trainer.callback_metrics["validation/loss"] if name == "loss" else values[name]
        )
        # for the callbacks alone: the logger has it under its own name
        self.log("validation/selection", chosen, logger=False)

    def predict_step(self, batch: Batch, batch_idx: int = 0, dataloader_idx: int = 0) -> Outputs:
        """All stages in order, on as many examples at a time as fit into memory."""
        return Outputs.joined(
            self.halving("prediction", batch, lambda rows: self(batch.rows(rows)))
        )

    def test_step(self, batch: Batch, batch_idx: int) -> dict[str, Outputs]:
        """Outputs of one batch for the probes, which listen to the test loop."""
        outputs = self.predict_step(batch)
        self.test_performance.update(probabilities(outputs.logits, self.task), batch.labels)
        return {"outputs": outputs}

    def on_test_epoch_end(self) -> None:
        self.performance = self.test_performance.compute()

    def read_texts(self, batches: Iterable[Batch]) -> str:
        """Take from all texts that it is examined on what it has to know of them; a sentence that
        says what, or nothing."""
        return ""

    def prepare(self, batch: Batch) -> None:
        """Called before anything is trained, with a few texts of different lengths; a UserError if
        it cannot be examined."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        """What the optimizer is given; the parameters of `attention` are a group with a weight
        decay of their own."""
        assert self.recipe is not None
        free = [(name, p) for name, p in self.named_parameters() if p.requires_grad]
        attention = [p for name, p in free if name.startswith("attention.")]
        others = [p for name, p in free if not name.startswith("attention.")]
        decay = self.recipe.attention_weight_decay
        own = {"params": attention} | ({} if decay is None else {"weight_decay": decay})
        return [{"params": others}, own] if attention else [{"params": others}]

    def configure_optimizers(self) -> Any:
        assert self.recipe is not None
        optimizer = build(
            "training.recipe.optimizer", self.recipe.optimizer, self.parameter_groups()
        )
        if self.recipe.warmup is not None:
            steps = int(self.trainer.estimated_stepping_batches)
            rising = self.recipe.warmup * steps
            falling = max(1.0, steps - rising)
            rate = LambdaLR(
                optimizer,
                lambda at: at / rising if at < rising else max(0.0, (steps - at) / falling),
            )
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": rate, "interval": "step"}}
        if self.recipe.scheduler is None:
            return optimizer
        scheduler = build("training.recipe.scheduler", self.recipe.scheduler, optimizer)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "monitor": "validation/selection"},
        }
