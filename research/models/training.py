"""Training one model, and reading what was kept of it."""

import json
import math
from collections.abc import Iterable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float

from attnprobe.data.module import TextDataModule
from attnprobe.evidence.claims import Claim, put_to_test
from attnprobe.findings import members
from attnprobe.findings.members import Score, balanced_accuracy
from attnprobe.models.trained import TrainedModel
from attnprobe.probes import readouts
from attnprobe.probes.base import ProbeRunner
from attnprobe.results.files import write_text
from attnprobe.runs.build import untrained
from attnprobe.runs.validation import configured
from research.words.truth import batches

Parts = Float[np.ndarray, "texts parts"]
"""What a score is made of, text by text."""
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
    best_epoch = 0
    best_weights = model.state_dict()
    for epoch in range(epochs):
        train_epoch(model, optimizer, data, draw)
        accuracy = validation_accuracy(model.eval(), data)
        if accuracy > best_accuracy:
            best_accuracy = accuracy
            best_epoch = epoch
            best_weights = deepcopy(model.state_dict())
        is_good = accuracy >= GOOD and epoch >= 2
        if is_good or epoch - best_epoch >= patience:
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
    order = draw.permutation(len(texts))
    for rows in np.array_split(order, math.ceil(len(texts) / 32)):
        batch = texts[rows.tolist()]
        given = model.recipe.objective.given(model, batch)
        outputs = model(given)
        loss = model.losses(outputs, batch)["loss"].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


@torch.no_grad()
def validation_accuracy(model: TrainedModel, data: TextDataModule) -> float:
    """The share of the validation texts that a model decides rightly."""
    right: list[bool] = []
    for batch in batches(data, "validation"):
        right += (model(batch).logits.argmax(-1) == batch.labels).tolist()
    return float(np.mean(right))


def train_and_keep(
    path: Path, config: dict[str, Any], seed: int, *, readout: bool = False, epochs: int = 8
) -> None:
    """Train a model, unless its file is there, and keep what it decides and where it attends.

    Args:
        path: of the file.
        config: the settings of a run.
        seed: of the training.
        readout: also what exact read-outs of its attention reach and show.
        epochs: at most.
    """
    if path.exists():
        return
    data, model = trained(config, seed, epochs, patience=3)
    probe = readouts.Readouts()
    probe.prepare(data.splits)
    runner = ProbeRunner([probe] if readout else [], seed)
    decisions: list[int] = []
    weights: list[list[float]] = []
    for batch in batches(data, size=100):
        outputs = model.predict_step(batch)
        decisions += outputs.logits.argmax(-1).tolist()
        for attention, content in zip(outputs.attention, batch.content, strict=True):
            weights.append(attention[content].tolist())
        runner.run(model, batch, outputs)

    labels = np.asarray(data.splits["test"].labels)
    facts: dict[str, Any] = {"label": labels.tolist(), "said": decisions, "weights": weights}
    if readout:
        facts |= facts_of_readouts(runner)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps(facts), path)
    accuracy = np.mean(np.array(decisions) == labels)
    print(f"{path.stem}: {accuracy:.3f}", flush=True)


def facts_of_readouts(runner: ProbeRunner) -> dict[str, Any]:
    """The means of the read-outs' metrics, and the verdicts on their claims."""
    numbers = numbers_of_probe(runner, "readouts")
    means = {metric: float(values.mean()) for metric, values in numbers.items()}
    return means | verdicts_of_probe(runner, "readouts", readouts.READING.claims)


def kept_parts(paths: Iterable[Path], score: Score = balanced_accuracy) -> list[Parts]:
    """What a score of each of these models is made of."""
    parts = []
    for path in sorted(paths):
        facts = json.loads(path.read_text())
        labels = classes_of(facts["label"])
        decisions = classes_of(facts["said"])
        parts.append(members.parts_of(labels, decisions, score))
    return parts


def classes_of(numbers: Sequence[int]) -> np.ndarray:
    """Of each text which of two classes it is of, `[texts, 2]`."""
    return np.array(numbers)[:, None] == np.arange(2)


def scores_of(parts: Iterable[Parts], score: Score = balanced_accuracy) -> list[float]:
    """The score of each model."""
    return [float(score(texts.sum(0))) for texts in parts]


def kept_attentions(folder: Path, cell: str) -> list[list[np.ndarray]]:
    """Where each model of a cell of validity attends, text by text; each sums to 1."""
    models = []
    for path in sorted(folder.glob(f"valid-{cell}-own-*.json")):
        texts = json.loads(path.read_text())["weights"]
        models.append([np.array(weights) / sum(weights) for weights in texts])
    return models


def table_of_probe(runner: ProbeRunner, probe: str) -> pd.DataFrame:
    """What a probe measured, as a long table."""
    identity: dict[str, Any] = dict.fromkeys(("run_id", "experiment", "data", "model", "split"), "")
    return runner.rows[probe].table(identity | {"seed": 0, "probe": probe}).to_pandas()


def numbers_of_probe(runner: ProbeRunner, probe: str) -> dict[str, np.ndarray]:
    """What a probe measured: metric → numbers of all texts."""
    metrics = table_of_probe(runner, probe).groupby("metric", observed=True)
    return {str(metric): rows["value"].to_numpy() for metric, rows in metrics}


def verdicts_of_probe(runner: ProbeRunner, probe: str, claims: Sequence[Claim]) -> dict[str, str]:
    """Claim → what a probe's numbers say of it."""
    findings = put_to_test(claims, table_of_probe(runner, probe))
    return {finding.claim.name: finding.verdict for finding in findings}
