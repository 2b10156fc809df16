"""How long will it take? Measured on a few batches of the data at hand, before anything long begins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from hydra.utils import instantiate
from jaxtyping import Int
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader

from attnprobe.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.data.section import tell_section
from attnprobe.report.figures.style import paper_style
from attnprobe.report.page.pictures import picture
from attnprobe.report.reading import readings
from attnprobe.running.build import importances_of, untrained
from attnprobe.running.expecting import GROUPS, device_of, groups_of, probing_seconds, training_seconds
from attnprobe.running.training import examined_precisely

BATCHES = 5
"""Training batches that are timed, spread over the lengths of the texts."""
TIMED, FEW = 16, 4
"""Test texts that are timed together, in each group of `groups_of`, and once as few as that: what a batch costs however
few texts it has is told from what each text costs."""

OWN_FIGURES = 4
"""Figures of a study itself, and what a page costs without any, in figures."""
PER_FIGURE = 3.5
"""What a figure of a page costs, in those of `small_figure_seconds`: it is larger, and has claims, tables and texts beside
it. A page of 17 figures took 10 seconds of processor time where the small one took 0.15."""


@dataclass(frozen=True)
class Costs:
    """What the data and the model cost on this machine.

    Attributes:
        rows: examples per split.
        training: seconds per training example and epoch, validation included.
        probing: seconds per test example, all probes together.
        device: where it was measured.
        each: seconds that a run takes to read its data and build its model.
    """

    rows: dict[str, int]
    training: float
    probing: float
    device: str
    each: float = 0.0

    def seconds(self, epochs: int, trainings: int, probed: int = 1) -> float:
        """An estimate for a number of trainings, and for how many of them are probed."""
        training = trainings * epochs * self.rows["train"] * self.training
        return self.beside(trainings) + training + probed * self.rows["test"] * self.probing

    def beside(self, trainings: int) -> float:
        """What so many runs take that have a row or thousands; one run where nothing is trained."""
        return max(1, trainings) * self.each


def measured_costs(config: DictConfig) -> Costs:
    """Time training and probes on a few batches with an untrained model; nothing is written.

    Args:
        config: the configuration of a run.

    Raises:
        UserError: the data cannot be used.
    """
    content: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    began = perf_counter()
    data: TextDataModule = instantiate(content["data"], seed=content["seed"])
    data.setup("fit")
    with torch.random.fork_rng():
        torch.manual_seed(content["seed"])
        classifier = untrained(content, data)
    each = perf_counter() - began
    tell_section(str(data.name), data.section)
    probes = [instantiate(part) for part in content["probe"].values()]
    for probe in probes:
        probe.prepare(data)
    importances = importances_of((name for probe in probes for name in probe.uses), content["importance"])
    for importance in importances.values():
        importance.prepare(data, "test")
    device = device_of(content["trainer"]["accelerator"])
    classifier.to(device)
    assert classifier.recipe is not None
    optimizer = classifier.recipe.optimizer([{"params": [p for p in classifier.parameters() if p.requires_grad]}])
    classifier.train()
    steps = [training_seconds(classifier, batch.to(device), optimizer) for batch in some(data.train_dataloader())]
    test, words = data.splits["test"], data.vocabulary.words

    def together(rows: list[int]) -> float:
        batch = test[rows].to(device)
        return len(batch) * probing_seconds(classifier, batch, probes, words, importances)

    with examined_precisely(classifier.eval()):
        probing = seconds_per_text(together, test.words.lengths, int(content["data"]["eval_batch_size"]))
    # the first step pays for what is set up once; an epoch ends with a pass over the validation split, and the trained model
    # reads the training texts once more
    share = 1 + (data.sizes["validation"] / data.sizes["train"] + 1 / max(1, int(content["training"]["epochs"]))) / 3
    return Costs(data.sizes, median(steps[-4:]) * share, probing, device, each)


def seconds_per_text(together: Callable[[list[int]], float], lengths: Int[np.ndarray, " texts"], batch: int) -> float:
    """What a text costs in batches of that many, from a few short, middling and long ones.

    Args:
        together: seconds that these rows take as one batch.
        lengths: of all texts.
        batch: texts that are examined together.
    """
    groups = [rows for rows in groups_of(lengths, max(1, min(TIMED, len(lengths) // GROUPS))) if rows]
    middle = groups[len(groups) // 2]
    few = middle[:FEW]
    together(few)  # pays for what is set up once
    alone, seconds = together(few), [together(rows) for rows in groups]
    in_middle = seconds[len(groups) // 2]
    spare = len(middle) - len(few)
    once = max(0.0, (len(middle) * alone - len(few) * in_middle) / spare) if spare else 0.0
    per_text = [max(0.0, all_of_it - once) / len(rows) for all_of_it, rows in zip(seconds, groups, strict=True)]
    return sum(per_text) / len(per_text) + once / batch


def page_seconds(probes: Sequence[str]) -> float:
    """What the page about these probes takes, from how long a small figure takes in this process."""
    drawings = sum(len(reading.drawings) for name, reading in readings().items() if name in probes)
    return PER_FIGURE * (drawings + OWN_FIGURES) * small_figure_seconds()


def small_figure_seconds() -> float:
    """A figure of a few points, drawn as a page draws its own; the first one loads the fonts and does not count."""
    spent = []
    for _ in range(2):
        start = perf_counter()
        with TemporaryDirectory() as folder, paper_style():
            figure = Figure(figsize=(3.3, 2.6))
            figure.subplots().scatter(np.arange(400) % 20, np.arange(400) / 20)
            picture(figure, "timed", "Points.", Path(folder))
        spent.append(perf_counter() - start)
    return spent[-1]


def some(loader: DataLoader[Batch]) -> list[Batch]:
    """A few batches, evenly spread, the middle one first and once more, as a warm-up."""
    batches = list(loader)
    places = sorted({round(i * (len(batches) - 1) / max(1, BATCHES - 1)) for i in range(BATCHES)})
    return [batches[len(batches) // 2], *(batches[place] for place in places)]
