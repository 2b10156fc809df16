"""What is known of a trained model without any test of attention."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors.torch import load_file
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.models.trained import TrainedModel
from attnprobe.results.directory import WEIGHTS, RunDirectory
from attnprobe.results.saved_settings import read_settings
from attnprobe.runs.build import untrained
from attnprobe.runs.validation import configured

SOLVED = 0.9
"""Accuracy, balanced over the classes, from which a model has learnt its rule."""
FOLLOWS = 0.9
"""Share of the texts with their reason changed whose decision follows, from which a model goes by
the reason."""
RIGHT = 0.8
"""Rightness from which an attention is right."""
WRONG = 0.05
"""Rightness up to which any attention is wrong."""
WRONG_BLIND = 0.4
"""Rightness below which an attention is wrong that knows nothing of the reason, or avoids it."""

Truth = Literal["right", "wrong", "between", "unsolved"]


@dataclass(frozen=True)
class Facts:
    """What is known of a model, from its test texts.

    Attributes:
        accuracy: share of right decisions, 0 to 1.
        balanced_accuracy: mean over the classes of this share.
        follows: share of the texts with their reason changed whose decision follows; NaN where no
            text has such a version.
        mass: attention on the words that decide, 0 to 1, mean over the texts that have some.
        chance: the same for equal weights.
        rightness: (mass − chance) / (1 − chance); NaN where no word decides any text.
        class_rightness: the same per class of the labels.
        texts: test texts in which some word decides.
    """

    accuracy: float
    balanced_accuracy: float
    follows: float
    mass: float
    chance: float
    rightness: float
    class_rightness: tuple[float, ...]
    texts: int

    @property
    def is_solved(self) -> bool:
        """Whether the model has learnt its rule, and goes by the reason where that is tested."""
        return self.balanced_accuracy >= SOLVED and not self.follows < FOLLOWS

    def truth(self, *, avoids_reason: bool) -> Truth:
        """Whether the attention is right.

        Args:
            avoids_reason: the attention knows nothing of the reason, or avoids it.
        """
        if not self.is_solved:
            return "unsolved"
        return truth_of(self.rightness, avoids_reason=avoids_reason)


def truth_of(rightness: float, *, avoids_reason: bool) -> Truth:
    """Whether the attention of a solved model is right.

    Args:
        rightness: see `Facts`.
        avoids_reason: see `Facts.truth`.
    """
    if np.isnan(rightness):  # no word decides any text: no attention can be on such words
        return "wrong"
    if rightness >= RIGHT:
        return "right"
    if rightness <= WRONG or (avoids_reason and rightness < WRONG_BLIND):
        return "wrong"
    return "between"


def facts_of_run(directory: Path) -> Facts:
    """What is known of a finished run's model."""
    return facts_of_model(*model_of_run(directory))


def model_of_run(directory: Path) -> tuple[TrainedModel, TextDataModule]:
    """A finished run's model in eval mode, and its data."""
    parts = configured(read_settings(directory))
    data = parts.data
    data.setup("test")
    model = untrained(parts, data)
    model.load_state_dict(load_file(RunDirectory(directory) / WEIGHTS))
    return model.eval().to(model.precision), data


def facts_of_model(model: TrainedModel, data: TextDataModule) -> Facts:
    """What is known of a model in eval mode."""
    columns = facts_of_texts(model, data)
    labels = columns["label"]
    mass = columns["mass"]
    chance = columns["chance"]
    recalls = [columns["right"][labels == label].mean() for label in np.unique(labels)]
    class_rightness = [
        rightness(mass[labels == label], chance[labels == label]) for label in range(model.classes)
    ]
    return Facts(
        accuracy=float(columns["right"].mean()),
        balanced_accuracy=float(np.mean(recalls)),
        follows=mean(columns["follows"]),
        mass=mean(mass),
        chance=mean(chance),
        rightness=rightness(mass, chance),
        class_rightness=tuple(class_rightness),
        texts=int(np.isfinite(mass).sum()),
    )


def mean(values: np.ndarray) -> float:
    """The mean of what is known; NaN where nothing is."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


def rightness(mass: np.ndarray, chance: np.ndarray) -> float:
    """0 for equal weights, 1 for all weight on the words that decide; NaN where none decides."""
    if not mean(chance) < 1:
        return float("nan")
    return (mean(mass) - mean(chance)) / (1 - mean(chance))


def batches(data: TextDataModule, split: str = "test", size: int = 50) -> Iterator[Batch]:
    """The texts of a split, so many at a time."""
    texts = data.splits[split]
    for start in range(0, len(texts), size):
        yield texts[range(start, min(start + size, len(texts)))]


@torch.no_grad()
def facts_of_texts(model: TrainedModel, data: TextDataModule) -> dict[str, np.ndarray]:
    """What is known of each test text.

    Returns:
        `label`; `right`: whether the decision is; `follows`: whether it follows a changed reason
        (NaN for a text without such a version); `mass` on the words that decide, and its `chance`
        (NaN where no word does).
    """
    columns: dict[str, list[float]] = defaultdict(list)
    for batch in batches(data):
        assert batch.rationale is not None
        outputs = model(batch)
        decision = outputs.logits.argmax(-1)
        columns["label"] += batch.labels.tolist()
        columns["right"] += (decision == batch.labels).double().tolist()

        columns["follows"] += follows_reason(model, data, batch).tolist()

        deciding = batch.rationale & batch.content
        defined = torch.where(deciding.any(-1), 1.0, torch.nan)
        mass = (outputs.attention * deciding).sum(-1)
        chance = deciding.sum(-1) / batch.content.sum(-1)
        columns["mass"] += (defined * mass).tolist()
        columns["chance"] += (defined * chance).tolist()
    return {name: np.array(values) for name, values in columns.items()}


def follows_reason(
    model: TrainedModel, data: TextDataModule, batch: Batch
) -> Float[Tensor, " batch"]:
    """1 where the decision follows a changed reason to the next class, 0 where it does not.

    NaN for a text without a version whose reason is changed.
    """
    if batch.counterfactual is None:
        return torch.full((len(batch),), torch.nan, dtype=torch.float64)
    is_in_version = batch.counterfactual != 0
    ids = torch.where(batch.content & is_in_version, batch.counterfactual, batch.ids)
    changed = replace(batch, ids=ids)
    if "counterfactual_rationale" in batch.extra:  # an imposed attention follows the reason
        rationale = batch.extra["counterfactual_rationale"] > 0
        changed = replace(changed, rationale=rationale)
    next_label = (batch.labels + 1) % model.classes
    is_next = decisions(model, data, changed) == next_label
    return torch.where(is_in_version.any(-1), is_next.double(), torch.nan)


def decisions(model: TrainedModel, data: TextDataModule, batch: Batch) -> Int[Tensor, " batch"]:
    """What the model decides of texts whose words (`Batch.ids`) were changed."""
    if model.reader is not None:
        texts = [
            data.vocabulary.decode(row[content].tolist())
            for row, content in zip(batch.ids, batch.content, strict=True)
        ]
        pieces = data.pipeline.batch_of(texts)
        batch = replace(
            batch,
            pieces=pieces.pieces,
            piece_word=pieces.piece_word,
            piece_kind=pieces.piece_kind,
        )
    return model(batch).logits.argmax(-1)
