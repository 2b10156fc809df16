"""How long will it take? Measured on a few batches of the data at hand, before anything long begins."""

from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch.utils.data import DataLoader

from attnprobe.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.data.section import tell_section
from attnprobe.running.build import importances_of, untrained
from attnprobe.running.expecting import device_of, probing_seconds, training_seconds
from attnprobe.running.training import examined_precisely

BATCHES = 5
"""Batches that are timed, spread over the lengths of the texts."""


@dataclass(frozen=True)
class Costs:
    """What the data and the model cost on this machine.

    Attributes:
        rows: examples per split.
        training: seconds per training example and epoch, validation included.
        probing: seconds per test example, all probes together.
        device: where it was measured.
    """

    rows: dict[str, int]
    training: float
    probing: float
    device: str

    def seconds(self, epochs: int, trainings: int, probed: int = 1) -> float:
        """An estimate for a number of trainings, and for how many of them are probed."""
        return trainings * epochs * self.rows["train"] * self.training + probed * self.rows["test"] * self.probing


def measured_costs(config: DictConfig) -> Costs:
    """Time training and probes on a few batches with an untrained model; nothing is written.

    Args:
        config: the configuration of a run.

    Raises:
        UserError: the data cannot be used.
    """
    content: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    data: TextDataModule = instantiate(content["data"], seed=content["seed"])
    data.setup("fit")
    with torch.random.fork_rng():
        torch.manual_seed(content["seed"])
        classifier = untrained(content, data)
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
    with examined_precisely(classifier.eval()):
        words = data.vocabulary.words
        passes = [
            probing_seconds(classifier, batch.to(device), probes, words, importances)
            for batch in some(data.test_dataloader())
        ]
    # the first of each pays for what is set up once; an epoch ends with a pass over the validation split
    share = 1 + data.sizes["validation"] / data.sizes["train"] / 3
    return Costs(data.sizes, median(steps[-4:]) * share, sum(passes[-4:]) / len(passes[-4:]), device)


def some(loader: DataLoader[Batch]) -> list[Batch]:
    """A few batches, evenly spread, the middle one first and once more, as a warm-up."""
    batches = list(loader)
    places = sorted({round(i * (len(batches) - 1) / max(1, BATCHES - 1)) for i in range(BATCHES)})
    return [batches[len(batches) // 2], *(batches[place] for place in places)]
