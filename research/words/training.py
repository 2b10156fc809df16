"""Training a small model, and what is known of it without any test of attention."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.models.trained import TrainedModel
from attnprobe.runs.build import untrained
from attnprobe.runs.validation import configured

LEAST_RATE = 0.003
"""Learning rate of a model from scratch at least, as it sees few texts."""
GOOD = 0.99
"""Validation accuracy that ends the training, from the third epoch on."""


def trained(
    config: Any, seed: int, epochs: int = 30, patience: int = 8
) -> tuple[TextDataModule, TrainedModel]:
    """Train a model.

    Args:
        config: the settings of a run.
        seed: of the weights and the order of the texts.
        epochs: at most.
        patience: epochs without a better validation accuracy that end the training.

    Returns:
        The data, and the model of the best epoch by validation accuracy, in eval mode.
    """
    torch.manual_seed(seed)
    parts = configured(config | {"seed": seed})
    data = parts.data
    data.setup("fit")
    model = untrained(parts, data)
    assert model.recipe is not None
    optimizer = model.recipe.optimizer(model.parameter_groups())
    if model.reader is None:
        for group in optimizer.param_groups:
            group["lr"] = max(group["lr"], LEAST_RATE)

    draw = np.random.default_rng(seed)
    best_accuracy = -1.0
    best_weights = model.state_dict()
    epochs_since = 0
    for epoch in range(epochs):
        train_epoch(model, optimizer, data, draw)
        accuracy = float(np.mean(known_of_texts(model.eval(), data, "validation")["right"]))
        epochs_since += 1
        if accuracy > best_accuracy:
            best_accuracy = accuracy
            best_weights = {name: weight.clone() for name, weight in model.state_dict().items()}
            epochs_since = 0
        if epochs_since >= patience or (accuracy >= GOOD and epoch >= 2):
            break
    model.load_state_dict(best_weights)
    return data, model.eval().to(model.precision)


def train_epoch(
    model: TrainedModel,
    optimizer: torch.optim.Optimizer,
    data: TextDataModule,
    draw: np.random.Generator,
) -> None:
    """One pass over the training texts in a random order, 32 at a time."""
    assert model.recipe is not None
    model.train()
    texts = data.splits["train"]
    for rows in np.array_split(draw.permutation(len(texts)), -(-len(texts) // 32)):
        batch = texts[rows.tolist()]
        outputs = model(model.recipe.objective.given(model, batch))
        loss = model.losses(outputs, batch)["loss"].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


def batches(data: TextDataModule, split: str = "test", size: int = 50) -> Iterator[Batch]:
    """The texts of a split, so many at a time."""
    texts = data.splits[split]
    for start in range(0, len(texts), size):
        yield texts[range(start, min(start + size, len(texts)))]


@torch.no_grad()
def known_of_texts(
    model: TrainedModel, data: TextDataModule, split: str = "test"
) -> dict[str, np.ndarray]:
    """What is known of each text of a split.

    Returns:
        `right`: whether the decision is; `follows`: whether it follows a changed reason (none where
        no text has one); `mass` on the words that decide, and its `chance` (NaN where no word
        does); `flips`: whether the decision does with the most attended other word (NaN where it
        cannot be exchanged); `off_text`: the share of the attention on no word.
    """
    columns: dict[str, list[float]] = defaultdict(list)
    columns["follows"] = []
    for batch in batches(data, split):
        assert batch.rationale is not None
        outputs = model(batch)
        decision = outputs.logits.argmax(-1)
        columns["right"] += (decision == batch.labels).double().tolist()

        if batch.counterfactual is not None:
            is_changed = batch.content & (batch.counterfactual != 0)
            ids = torch.where(is_changed, batch.counterfactual, batch.ids)
            follows = decision_with(model, data, batch, ids) == (batch.labels + 1) % model.classes
            columns["follows"] += follows.double().tolist()

        deciding = batch.rationale & batch.content
        defined = torch.where(deciding.any(-1), 1.0, torch.nan)
        columns["mass"] += (defined * (outputs.attention * deciding).sum(-1)).tolist()
        columns["chance"] += (defined * deciding.sum(-1) / batch.content.sum(-1)).tolist()

        ids, is_exchanged = with_top_word_exchanged(batch, outputs.attention)
        flips = decision_with(model, data, batch, ids) != decision
        columns["flips"] += torch.where(is_exchanged, flips.double(), torch.nan).tolist()

        off_text = [0.0] * len(batch)
        if outputs.off_text is not None:
            off_text = outputs.off_text.tolist()
        columns["off_text"] += off_text
    return {name: np.array(values) for name, values in columns.items()}


def with_top_word_exchanged(batch: Batch, attention: Tensor) -> tuple[Tensor, Tensor]:
    """Exchange each text's most attended word for that of the text before, if neither decides.

    Returns:
        The ids `[batch, seq]`, and of which texts a word was exchanged `[batch]`.
    """
    assert batch.rationale is not None
    silent = batch.content & ~batch.rationale
    top = attention.masked_fill(~silent, -1).argmax(-1, keepdim=True)
    before = torch.arange(len(batch)).roll(1)
    is_top_of_all = attention.gather(1, top) >= attention.amax(-1, keepdim=True) - 1e-9
    is_exchanged = is_top_of_all & silent[before].gather(1, top) & silent.gather(1, top)
    word = torch.where(is_exchanged, batch.ids[before].gather(1, top), batch.ids.gather(1, top))
    return batch.ids.scatter(1, top, word), is_exchanged.squeeze(-1)


def decision_with(
    model: TrainedModel, data: TextDataModule, batch: Batch, ids: Int[Tensor, "batch seq"]
) -> Int[Tensor, " batch"]:
    """What the model decides of the same texts with other words in their places."""
    changed = replace(batch, ids=ids)
    if model.reader is not None:
        texts = [
            data.vocabulary.decode(row[content].tolist())
            for row, content in zip(ids, batch.content, strict=True)
        ]
        pieces = data.pipeline.batch_of(texts)
        changed = replace(
            changed,
            pieces=pieces.pieces,
            piece_word=pieces.piece_word,
            piece_kind=pieces.piece_kind,
        )
    return model(changed).logits.argmax(-1)
