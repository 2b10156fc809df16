"""How long a training, its probes and a page will take, and how much memory: measured on a few
texts, said beforehand."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from io import BytesIO
from statistics import median
from time import perf_counter

import numpy as np
import torch
from jaxtyping import Int
from lightning import Callback, LightningModule, Trainer
from matplotlib.figure import Figure
from omegaconf import DictConfig
from torch import Tensor
from torch.optim import Optimizer

from attnprobe.core.batch import Batch
from attnprobe.core.sanitise import duration
from attnprobe.data.batching import TextSplit
from attnprobe.data.data_warnings import tell_section
from attnprobe.findings.studies.base import Costs
from attnprobe.models.trained import TrainedModel
from attnprobe.plots.style import paper_style
from attnprobe.probes.base import ProbeRunner
from attnprobe.runs.build import importances_of, untrained
from attnprobe.runs.settings import Settings
from attnprobe.runs.training import examined_precisely

GROUPS = 3
PROBED = 2
TRAINED = 8
"""Texts that are timed: groups (short, middling and long ones), and texts of each in probing and in
training."""
FEWEST = 50
LEAST = 60.0
MUCH = 4e9
LONGEST = 2
"""Nothing is said of fewer texts, of fewer seconds, of fewer bytes; how many of the longest texts
tell the memory."""
PER_PARAMETER = 4  # numbers that are kept for each: itself, its gradient, and AdamW's two means
BATCHES = 5
TIMED = 16
FEW = 4
AT_MOST = 15.0
"""For a study: training batches that are timed; test texts that are timed together in each group,
and once as few as that, to tell what a batch costs; seconds that the groups may take, or else only
the few are timed."""
PER_FIGURE = 3.5
"""What a figure of a page costs, in small ones: it is larger, and has claims, tables and texts
beside it."""


class Forecast(Callback):
    """Says how long a training or its probes will take, where that is a minute or more, and how
    much memory a step of the training takes, where that is 4 GB or more. It may be left out; the
    model and the random numbers stay as they are.

    A training is told of pretrained models alone; probes also where one of them is slow."""

    def __init__(
        self, split: TextSplit, *, batch_size: int = 1, runner: ProbeRunner | None = None
    ) -> None:
        self.runner = runner
        self.batch_size = min(batch_size, len(split))
        self.split = split

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Memory, then time: where memory ends, the system stops the process without a word. Memory
        is what a step with the longest texts takes at least: what lives for a moment comes on top
        of it (a third more was seen)."""
        assert isinstance(pl_module, TrainedModel)
        if pl_module.reader is None or not trainer.is_global_zero or len(self.split) < LONGEST:
            return
        training = pl_module.training
        epochs = trainer.max_epochs or 1
        longest = np.argsort(self.split.words.lengths, kind="stable")[-LONGEST:].tolist()
        try:
            with torch.random.fork_rng():
                pl_module.train()
                per_text = (
                    saved_bytes(pl_module, self.split[longest].to(pl_module.device)) / LONGEST
                )
                own = PER_PARAMETER * sum(
                    part.numel() * part.element_size() for part in pl_module.parameters()
                )
                expected = own + per_text * self.batch_size
                fewer = max(1, self.batch_size // 4)
                if expected >= MUCH:
                    print(
                        f"training takes at least {expected / 1e9:.0f} GB of memory for a step with {self.batch_size} of the "
                        f"longest texts; data.batch_size={fewer} would take {(own + per_text * fewer) / 1e9:.0f}",
                        flush=True,
                    )
                self.tell_time(
                    f"training for {epochs} epochs", epochs, TRAINED, training_seconds, pl_module
                )
        finally:
            pl_module.train(training)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, TrainedModel)
        probes = [] if self.runner is None else self.runner.probes
        if (
            self.runner
            and probes
            and (pl_module.reader is not None or any(probe.slow for probe in probes))
        ):
            what = f"probing with {', '.join(probe.name for probe in probes)}"
            self.tell_time(what, 1, PROBED, partial(probing_seconds, self.runner), pl_module)

    def tell_time(
        self,
        what: str,
        times: int,
        each: int,
        per_text: Callable[[TrainedModel, Batch], float],
        model: TrainedModel,
    ) -> None:
        """Print how long all texts will take, from some short, middling and long ones."""
        if len(self.split) < FEWEST:
            return
        groups = [
            self.split[rows].to(model.device) for rows in groups_of(self.split.words.lengths, each)
        ]
        per_text(model, groups[0])  # pays for what is set up once
        seconds = (
            times * len(self.split) * float(np.mean([per_text(model, batch) for batch in groups]))
        )
        if seconds >= LEAST:
            timed = f"{len(self.split):,} texts, {GROUPS * each} of them timed"
            print(
                f"{what} will take about {duration(seconds)} on this machine ({model.device.type}): {timed}",
                flush=True,
            )


def training_seconds(
    model: TrainedModel, batch: Batch, optimizer: Optimizer | None = None
) -> float:
    """Seconds per example of one step, without the update of the weights where there is no
    optimizer."""
    start = now(model)
    model.losses(model(batch), batch)["loss"].mean().backward()
    if optimizer is not None:
        optimizer.step()
    model.zero_grad()
    return (now(model) - start) / len(batch)


def probing_seconds(
    runner: ProbeRunner, model: TrainedModel, batch: Batch, spent: Counter[str] | None = None
) -> float:
    """Seconds per example of one test batch under all probes; what they measure is dropped. `spent`
    gets each probe's."""
    dropped = ProbeRunner(
        runner.probes, runner.seed, runner.words, runner.importances, runner.classes
    )
    start = now(model)
    with torch.no_grad():
        dropped.on_test_batch_end(None, model, {"outputs": model(batch)}, batch, 0)
    if spent is not None:
        spent.update(dropped.seconds)
    return (now(model) - start) / len(batch)


def now(model: TrainedModel) -> float:
    """The time at which everything that was asked of the device is done."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def saved_bytes(model: TrainedModel, batch: Batch) -> int:
    """What a pass forward keeps for the pass back, parameters not among it; each stretch of memory
    once."""
    own = {part.untyped_storage().data_ptr() for part in model.parameters()}
    found: dict[int, Tensor] = {}

    def note(value: Tensor) -> Tensor:
        # held on to until all are counted, so that no stretch is given out twice
        found.setdefault(value.untyped_storage().data_ptr(), value)
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        model.losses(model(batch), batch)["loss"].mean()
    return sum(
        value.untyped_storage().nbytes() for place, value in found.items() if place not in own
    )


def groups_of(lengths: Int[np.ndarray, " texts"], each: int) -> list[list[int]]:
    """Rows of that many texts from the middle of each third, by length.

    >>> groups_of(np.array([9, 1, 8, 2, 7, 3, 6, 4, 5, 5, 5, 5]), 2)
    [[3, 5], [9, 10], [4, 2]]
    """
    order = np.argsort(lengths, kind="stable")
    starts = [
        round((2 * group + 1) * len(order) / (2 * GROUPS)) - each // 2 for group in range(GROUPS)
    ]
    return [order[start : start + each].tolist() for start in starts]


def measured_costs(config: DictConfig) -> Costs:
    """Time training, probes and a figure on a few batches with an untrained model; nothing is
    written."""
    settings = Settings.of(config)
    parts = settings.parts
    began = perf_counter()
    data = parts.data
    data.setup("fit")
    with torch.random.fork_rng():
        torch.manual_seed(parts.seed)
        model = untrained(parts, data)
    each = perf_counter() - began
    tell_section(str(data.name), data.section)
    probes = list(parts.probe.values())
    importances = importances_of(
        (name for probe in probes for name in probe.uses), parts.importance
    )
    for probe in probes:
        probe.prepare(data.splits)
    for importance in importances.values():
        importance.prepare(data, "test")
    runner = ProbeRunner(probes, 0, data.vocabulary.words, importances=importances)
    on_gpu = torch.cuda.is_available() and parts.trainer.accelerator in (
        "auto",
        "gpu",
        "cuda",
    )
    device = "cuda" if on_gpu else "cpu"
    model.to(device).train()
    training = 0.0
    test = data.splits["test"]
    epochs = parts.training.epochs
    if epochs:
        assert model.recipe is not None
        optimizer = model.recipe.optimizer(
            [{"params": [one for one in model.parameters() if one.requires_grad]}]
        )
        batches = list(data.train_dataloader())
        spread = sorted(
            {round(i * (len(batches) - 1) / max(1, BATCHES - 1)) for i in range(BATCHES)}
        )
        # the middle one first and once more: the first step pays for what is set up once
        steps = [
            training_seconds(model, batches[i].to(device), optimizer)
            for i in [len(batches) // 2, *spread]
        ]
        # an epoch ends with a pass over the validation split, and the trained model reads the
        # training texts once more
        training = median(steps[-4:]) * (
            1 + (data.sizes["validation"] / data.sizes["train"] + 1 / epochs) / 3
        )

    spent: Counter[str] = Counter()

    def together(rows: list[int]) -> float:
        return len(rows) * probing_seconds(runner, model, test[rows].to(device), spent)

    with examined_precisely(model.eval()):
        # pays for what is set up once, such as a pass over the whole split, and is no test's time
        # per text
        probing_seconds(runner, model, test[groups_of(test.words.lengths, 1)[1]].to(device))
        probing = seconds_per_text(together, test.words.lengths, data.settings.eval_batch_size)
    for _ in range(2):  # the first figure loads the fonts and does not count
        began = perf_counter()
        with paper_style():
            figure = Figure(figsize=(3.3, 2.6))
            figure.subplots().scatter(np.arange(400) % 20, np.arange(400) / 20)
            for kind in ("svg", "pdf"):
                figure.savefig(BytesIO(), format=kind)
        drawing = PER_FIGURE * (perf_counter() - began)
    shares = {name: seconds / max(spent.total(), 1e-9) for name, seconds in spent.items()}
    return Costs(data.sizes, training, probing, device, each, drawing, shares)


def seconds_per_text(
    together: Callable[[list[int]], float], lengths: Int[np.ndarray, " texts"], batch: int
) -> float:
    """What a text costs in batches of so many, from a few short, middling and long ones;
    `together`: seconds that rows take as one batch."""
    groups = groups_of(lengths, max(1, min(TIMED, len(lengths) // GROUPS)))
    middle = groups[GROUPS // 2]
    few = min(FEW, len(middle))
    alone = together(middle[:FEW])
    if few < len(middle) and alone / few * GROUPS * len(middle) > AT_MOST:
        return alone / few
    seconds = [together(rows) for rows in groups if rows]
    per_text = sum(seconds) / len(seconds) / len(middle)
    more = len(middle) - few
    once = (
        max(0.0, (len(middle) * alone - few * seconds[len(seconds) // 2]) / more) if more else 0.0
    )
    return max(0.0, per_text - once / len(middle)) + once / batch
