"""How long training and probing will take, measured on a few texts and said beforehand, where they may take long."""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch.optim import Optimizer

from attnprobe.batch import Batch
from attnprobe.data.batching import TextSplit
from attnprobe.importance.base import Importance
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import Probe, Subject
from attnprobe.randomness import Draws
from attnprobe.running.training import examined_precisely
from attnprobe.shown import duration

GROUPS, PROBED, TRAINED = 3, 2, 8
"""Texts that are timed: that many groups, short, middling and long ones, of that many texts each, in probing and in
training."""
FEWEST = 50
"""Of fewer texts nothing is said: timing some of them would take a good part of the whole."""
LEAST = 60.0
"""Seconds below which nothing is said."""


def tell_expected_training(
    classifier: TrainedModel, split: TextSplit, epochs: int, hardware: Mapping[str, Any]
) -> None:
    """Print how long the training of a pretrained model will take, if that is a minute or more. It stays as it was, and so
    does the state of the random numbers.

    Args:
        classifier: before its training.
        split: what it is trained on.
        epochs: how often.
        hardware: the trainer's settings.
    """
    if classifier.reader is None or len(split) < FEWEST:
        return
    training, before, device = classifier.training, classifier.device, device_of(hardware["accelerator"])
    try:
        with torch.random.fork_rng():
            classifier.train().to(device)
            groups = [split[rows].to(device) for rows in groups_of(split.words.lengths, TRAINED)]
            training_seconds(classifier, groups[0])  # pays for what is set up once
            per_text = [training_seconds(classifier, batch) for batch in groups]
    finally:
        classifier.train(training).to(before)
    seconds = epochs * len(split) * float(np.mean(per_text))
    if seconds >= LEAST:
        print(
            f"training for {epochs} epochs will take about {duration(seconds)} on this machine ({device}): "
            f"{len(split):,} texts, {GROUPS * TRAINED} of them timed",
            flush=True,
        )


def training_seconds(classifier: TrainedModel, batch: Batch, optimizer: Optimizer | None = None) -> float:
    """Seconds per example of one step, without the update of the weights where there is no optimizer."""
    start = now(classifier)
    classifier.losses(classifier(batch), batch)["loss"].mean().backward()
    if optimizer is not None:
        optimizer.step()
    classifier.zero_grad()
    return (now(classifier) - start) / len(batch)


def may_take_long(classifier: TrainedModel, probes: Sequence[Probe], texts: int) -> bool:
    """Whether it is worth a few texts' time to say how long the rest will take: of a pretrained model, or a probe that is
    long enough to be resumed."""
    slow = classifier.reader is not None or any(probe.resumes for probe in probes)
    return bool(probes) and slow and texts >= FEWEST


def tell_expected(
    classifier: TrainedModel,
    split: TextSplit,
    probes: Sequence[Probe],
    words: Sequence[str],
    importances: Mapping[str, Importance],
    hardware: Mapping[str, Any],
) -> None:
    """Print how long the probes will take, where that may be long, and is a minute or more.

    Args:
        classifier: in eval mode or not; it is left as it was.
        split: whose texts are probed.
        probes: all of them.
        words: the vocabulary.
        importances: by name.
        hardware: the trainer's settings.
    """
    if not may_take_long(classifier, probes, len(split)):
        return
    accelerator = hardware["accelerator"]
    seconds = expected_seconds(classifier, split, probes, words, importances, accelerator)
    if seconds >= LEAST:
        names = ", ".join(probe.name for probe in probes)
        print(
            f"probing with {names} will take about {duration(seconds)} on this machine "
            f"({device_of(accelerator)}): {len(split):,} texts, {GROUPS * PROBED} of them timed",
            flush=True,
        )


def expected_seconds(
    classifier: TrainedModel,
    split: TextSplit,
    probes: Sequence[Probe],
    words: Sequence[str],
    importances: Mapping[str, Importance],
    accelerator: str,
) -> float:
    """Seconds for the whole split, from some of its short, middling and long texts; see `tell_expected`."""
    training, before, device = classifier.training, classifier.device, device_of(accelerator)
    classifier.eval().to(device)
    try:
        with examined_precisely(classifier):
            groups = [split[rows].to(device) for rows in groups_of(split.words.lengths, PROBED)]
            probing_seconds(classifier, groups[0], probes, words, importances)  # pays for what is set up once
            per_text = [probing_seconds(classifier, batch, probes, words, importances) for batch in groups]
    finally:
        classifier.train(training).to(before)
    return len(split) * float(np.mean(per_text))


def groups_of(lengths: Int[np.ndarray, " texts"], each: int) -> list[list[int]]:
    """Rows of that many texts from the middle of each third, by length.

    >>> groups_of(np.array([9, 1, 8, 2, 7, 3, 6, 4, 5, 5, 5, 5]), 2)
    [[3, 5], [9, 10], [4, 2]]
    """
    order = np.argsort(lengths, kind="stable")
    starts = [round((2 * group + 1) * len(order) / (2 * GROUPS)) - each // 2 for group in range(GROUPS)]
    return [order[start : start + each].tolist() for start in starts]


def device_of(accelerator: str) -> str:
    """Where Lightning will run with this setting."""
    return "cuda" if torch.cuda.is_available() and accelerator in ("auto", "gpu", "cuda") else "cpu"


def probing_seconds(
    classifier: TrainedModel,
    batch: Batch,
    probes: Sequence[Probe],
    words: Sequence[str],
    importances: Mapping[str, Importance],
) -> float:
    """Seconds per example of one test batch under all probes."""
    start = now(classifier)
    with torch.no_grad():
        outputs = classifier(batch)
    subject = Subject(classifier, batch, outputs, classifier.readout(batch, outputs), words, importances)
    for probe in probes:
        for _ in probe.examine(subject, Draws(0, probe.name)):
            pass
    return (now(classifier) - start) / len(batch)


def now(classifier: TrainedModel) -> float:
    """The time at which everything that was asked of the device is done."""
    if classifier.device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter()
