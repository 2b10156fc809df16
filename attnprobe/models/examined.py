"""A batch of a test loop, as probes read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnprobe.core.batch import Axis, Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.models.staged import Staged, StagedModel
from attnprobe.models.trained import TrainedModel


@dataclass(frozen=True)
class Examined:
    """A batch that went through a model.

    Attributes:
        source: the batch as the loader gave it.
        classifier: the model.
        batch: the texts.
        outputs: of the model, in the precision that it is examined in.
    """

    source: Any
    classifier: TrainedModel
    batch: Batch
    outputs: Outputs


def classifier_of(module: Any) -> TrainedModel:
    """A module that is tested as probes read it: itself, or its three stages.

    Raises:
        UserError: it is neither a model of this package nor has its stages.
    """
    if isinstance(module, TrainedModel):
        return module
    if not isinstance(module, Staged):
        raise UserError(
            f"probes cannot read {type(module).__name__}: expected a module with the methods "
            f"encode, attend and decode, class {type(module).__name__}(attnprobe.Staged, "
            f"LightningModule)"
        )
    if "_as_classifier" not in vars(module):
        # a plain attribute: no part of the module, whose part the module is
        vars(module)["_as_classifier"] = StagedModel(module)
    classifier: StagedModel = vars(module)["_as_classifier"]
    return classifier if classifier.device == module.device else classifier.to(module.device)


def examined(
    module: Any,
    step: Any,
    source: Any,
    rows: Int[Tensor, "batch"],
    is_repeat: Bool[Tensor, "batch"],
) -> Examined | None:
    """What all callbacks read of one batch of a test loop.

    Args:
        module: that is tested.
        step: what its `test_step` returned.
        source: the batch.
        rows: of its texts in the data set.
        is_repeat: texts that are there only to fill up a device's share.

    Returns:
        The same object for each callback; None where all texts are repeats.

    Raises:
        UserError: probes cannot read such a module or batch.
    """
    latest: Examined | None = vars(module).get("_examined")
    if latest is None or latest.source is not source:
        latest = _read(module, step, source, rows, is_repeat)
        vars(module)["_examined"] = latest
    return latest


def forget_batch(module: Any) -> None:
    """Let go of the batch that was read last."""
    vars(module).pop("_examined", None)


def _read(
    module: Any,
    step: Any,
    source: Any,
    rows: Int[Tensor, "batch"],
    is_repeat: Bool[Tensor, "batch"],
) -> Examined | None:
    if bool(is_repeat.all()):
        return None
    classifier: Any = classifier_of(module)
    with classifier.precisely():
        if classifier is not module:
            batch = module.read(source, rows).changed(_recordable)
            classifier.has_markers = isinstance(source, Batch)
            outputs = classifier.predict(batch)
            _refuse_labels(module, batch, outputs)
        else:
            batch = source.changed(_recordable)
            returned = step.get("outputs") if isinstance(step, Mapping) else None
            if not isinstance(returned, Outputs):
                raise UserError(
                    f"{type(module).__name__}.test_step returned no outputs: expected "
                    f"{{'outputs': Outputs}}, as attnprobe's own returns them"
                )
            outputs = returned
        if bool(is_repeat.any()):
            first = ~is_repeat.to(batch.ids.device)
            batch, outputs = batch.rows(first), outputs.rows(first.nonzero().squeeze(-1))
    return Examined(source, classifier, batch, outputs)


def _refuse_labels(module: Staged, batch: Batch, outputs: Outputs) -> None:
    """Refuse labels that are none of the classes that a user's own module has logits of."""
    name = type(module).__name__
    labels = batch.labels
    texts, classes = outputs.logits.shape
    expected = [texts, classes] if module.task is Task.MULTI_LABEL else [texts]
    if list(labels.shape) != expected:
        raise UserError(
            f"{name}.read: labels of the shape {list(labels.shape)}, expected {expected}: a class "
            f"number per text, or with task = attnprobe.Task.MULTI_LABEL a 0 or 1 per class"
        )
    largest = 1 if module.task is Task.MULTI_LABEL else classes - 1
    is_unknown = (labels < 0) | (labels > largest)
    if bool(is_unknown.any()):
        raise UserError(
            f"{name}.read: a label {labels[is_unknown][0].item():g}, expected 0 to {largest}, as "
            f"{name}.decode returns {classes} logits: leave texts without a label out"
        )


def _recordable(axis: Axis, tensor: Tensor) -> Tensor:
    """A tensor that autograd may keep: one of a trainer's inference mode is copied."""
    return tensor.clone() if tensor.is_inference() else tensor


def places_of(
    sampler: Any, batch_idx: int, size: int, batch_size: int | None
) -> tuple[Int[Tensor, "batch"], Bool[Tensor, "batch"]]:
    """Which rows of the data set a batch has.

    Args:
        sampler: of the loader, which is not shuffled.
        batch_idx: number of the batch on this device.
        size: texts of this batch.
        batch_size: of the loader; None: an entry of its sampler is a whole batch.

    Returns:
        Their rows, and which of them only fill up the share of this device, as torch's
        `DistributedSampler` repeats the first rows.
    """
    if batch_size is None:
        place = torch.full((size,), batch_idx)
    else:
        place = batch_idx * batch_size + torch.arange(size)
    if not isinstance(sampler, torch.utils.data.distributed.DistributedSampler):
        return place, torch.zeros(size, dtype=torch.bool)
    entries = len(sampler.dataset)  # type: ignore[arg-type]
    number = place * sampler.num_replicas + sampler.rank
    return number % entries, number >= entries
