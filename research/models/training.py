"""Training one model, and reading what was kept of it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from attnprobe.findings import members
from attnprobe.findings.members import Score, balanced_accuracy
from attnprobe.probes import readouts
from attnprobe.probes.base import ProbeRunner
from attnprobe.results.files import write_text
from research.words.asking import numbers_of_probe, verdicts_of_probe
from research.words.training import batches, trained

Parts = Float[np.ndarray, "texts parts"]
"""What a score is made of, text by text."""


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
    for number, batch in enumerate(batches(data, size=100)):
        outputs = model.predict_step(batch)
        decisions += outputs.logits.argmax(-1).tolist()
        for attention, content in zip(outputs.attention, batch.content, strict=True):
            weights.append(attention[content].tolist())
        runner.on_test_batch_end(None, model, {"outputs": outputs}, batch, number)

    labels = np.asarray(data.splits["test"].labels)
    facts: dict[str, Any] = {"label": labels.tolist(), "said": decisions, "weights": weights}
    if readout:
        facts |= facts_of_readouts(runner)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(json.dumps(facts), path)
    print(f"{path.stem}: {np.mean(np.array(decisions) == labels):.3f}", flush=True)


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
