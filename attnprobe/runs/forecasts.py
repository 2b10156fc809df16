"""How long a training, its probes and a page will take, and how much memory.

All of it is measured on a few texts and said beforehand.
"""

import math
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from io import BytesIO
from statistics import median
from time import perf_counter, process_time

import numpy as np
import torch
from jaxtyping import Int
from lightning import Callback, LightningModule, Trainer
from matplotlib.figure import Figure
from omegaconf import DictConfig
from torch import Tensor
from torch.optim import Optimizer

from attnprobe.core.batch import Batch
from attnprobe.core.clock import CLOCK, TimeIsUp, seconds_of_process
from attnprobe.core.printing import tell
from attnprobe.core.sanitise import duration
from attnprobe.data.batching import TextSplit
from attnprobe.data.data_warnings import tell_section
from attnprobe.data.module import TextDataModule
from attnprobe.findings.studies.base import ANSWERING, Costs
from attnprobe.models.trained import TrainedModel
from attnprobe.plots.style import paper_style
from attnprobe.probes.base import ProbeRunner
from attnprobe.runs.build import untrained
from attnprobe.runs.settings import Settings

GROUPS = 3
"""Groups of texts that are timed: short, middling and long ones."""
PROBED = 2
"""Texts of each group that are timed in probing."""
TRAINED = 8
"""Texts of each group that are timed in training."""
MIN_TEXTS = 50
"""A split with fewer texts gets no forecast of its time."""
MIN_SECONDS = 60.0
"""A shorter time is not worth a forecast."""
MIN_BYTES = 4e9
"""Less memory is not worth a forecast."""
LONGEST = 2
"""How many of the longest texts the memory is measured on."""
PER_PARAMETER = 4
"""Numbers kept for each parameter: itself, its gradient, and AdamW's two means."""

STUDY_BATCHES = 5
"""Training batches that a study times."""
STUDY_TEXTS = 16
"""Test texts of each group that a study times as one batch."""
SMALL_BATCH = 4
"""Texts of a second, smaller batch, which tells what a batch costs besides its texts."""
ANSWERED = 20
"""Test texts on which a study times the tests that its answer goes by."""
MAX_SECONDS = 15.0
"""If the batches of all groups would take longer, a study times the small batch alone."""
FIGURES = 4
"""Small figures that a study times."""
PAGE_SECONDS = 8.0
"""Processor time of a page besides its figures, in seconds: its modules, texts and playground."""
COST_OF_FIGURE = 3.5
"""Cost of a page's figure, in small figures: it is larger, with claims, tables and texts beside it.
"""


class Forecast(Callback):
    """Says how long a training or its probes will take, and how much memory a training step takes.

    A time below `MIN_SECONDS` and memory below `MIN_BYTES` are not mentioned. A training has a
    forecast for pretrained models only; probes have one also where one of them is slow. The model
    and the random numbers stay as they are, so that the callback may be left out.
    """

    def __init__(
        self, split: TextSplit, *, batch_size: int = 1, runner: ProbeRunner | None = None
    ) -> None:
        """Prepare a forecast.

        Args:
            split: the texts that will be trained on or probed.
            batch_size: of the training.
            runner: the probes; None where a training is forecast.
        """
        self.runner = runner
        self.batch_size = min(batch_size, len(split))
        self.split = split

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the memory first: where it ends, the system kills the process silently."""
        assert isinstance(pl_module, TrainedModel)
        if pl_module.reader is None or not trainer.is_global_zero or len(self.split) < LONGEST:
            return

        was_training = pl_module.training
        epochs = trainer.max_epochs or 1
        try:
            with torch.random.fork_rng():
                pl_module.train()
                self._print_memory(pl_module)
                self._print_time(
                    f"training for {epochs} epochs",
                    passes=epochs,
                    group_size=TRAINED,
                    time_text=training_seconds,
                    model=pl_module,
                )
        finally:
            pl_module.train(was_training)

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the time that the probes will take."""
        assert isinstance(pl_module, TrainedModel)
        if self.runner is None or not self.runner.probes:
            return
        probes = self.runner.probes
        if pl_module.reader is not None or any(probe.slow for probe in probes):
            self._print_time(
                f"probing with {', '.join(probe.name for probe in probes)}",
                passes=1,
                group_size=PROBED,
                time_text=partial(probing_seconds, self.runner),
                model=pl_module,
            )

    def _print_memory(self, model: TrainedModel) -> None:
        """Print what a training step takes at least.

        It is the memory of a batch of the longest texts. Tensors that live for a moment come on top
        of it: a third more was seen.
        """
        longest = np.argsort(self.split.words.lengths, kind="stable")[-LONGEST:].tolist()
        bytes_per_text = saved_bytes(model, self.split[longest].to(model.device)) / LONGEST
        parameter_bytes = sum(
            parameter.numel() * parameter.element_size() for parameter in model.parameters()
        )
        fixed_bytes = PER_PARAMETER * parameter_bytes

        expected = fixed_bytes + bytes_per_text * self.batch_size
        if expected >= MIN_BYTES:
            smaller = max(1, self.batch_size // 4)
            with_smaller = fixed_bytes + bytes_per_text * smaller
            tell(
                f"training takes at least {expected / 1e9:.0f} GB of memory for a step with "
                f"{self.batch_size} of the longest texts; data.batch_size={smaller} would take "
                f"{with_smaller / 1e9:.0f}"
            )

    def _print_time(
        self,
        activity: str,
        *,
        passes: int,
        group_size: int,
        time_text: Callable[[TrainedModel, Batch], float],
        model: TrainedModel,
    ) -> None:
        """Print how long all texts will take, from some short, middling and long ones."""
        if len(self.split) < MIN_TEXTS:
            return
        batches = [
            self.split[rows].to(model.device)
            for rows in groups_of(self.split.words.lengths, group_size)
        ]
        time_text(model, batches[0])  # pays for what is set up once
        mean = float(np.mean([time_text(model, batch) for batch in batches]))

        seconds = passes * len(self.split) * mean
        if seconds >= MIN_SECONDS:
            tell(
                f"{activity} will take about {duration(seconds)} on this machine "
                f"({model.device.type}): "
                f"{len(self.split):,} texts, {GROUPS * group_size} of them timed"
            )


def training_seconds(
    model: TrainedModel, batch: Batch, optimizer: Optimizer | None = None
) -> float:
    """Time one training step.

    Args:
        model: in training mode; it gets new weights only from the optimizer.
        batch: of this step.
        optimizer: of its parameters; None: the update of the weights is left out.

    Returns:
        seconds per example.
    """
    start = now(model)
    model.losses(model(batch), batch)["loss"].mean().backward()
    if optimizer is not None:
        optimizer.step()
    model.zero_grad()
    return (now(model) - start) / len(batch)


def probing_seconds(
    runner: ProbeRunner, model: TrainedModel, batch: Batch, spent: Counter[str] | None = None
) -> float:
    """Time one test batch under all probes; what they measure is dropped.

    Args:
        runner: with the probes; its tables stay as they are.
        model: in eval mode.
        batch: of test texts.
        spent: every probe's seconds are added to it, by the probe's name.

    Returns:
        seconds per example.
    """
    trial = runner.fresh()
    start = now(model)
    with torch.no_grad():
        trial.run(model, batch, model(batch))
    if spent is not None:
        spent.update(trial.seconds)
    return (now(model) - start) / len(batch)


def now(model: TrainedModel) -> float:
    """The time at which the device has finished its queue, in seconds."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def saved_bytes(model: TrainedModel, batch: Batch) -> int:
    """Bytes that a forward pass keeps for the backward pass, besides the parameters.

    Tensors that share memory count once.
    """
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    saved: dict[int, Tensor] = {}

    def note(value: Tensor) -> Tensor:
        # held until all are counted, so that no address is given out twice
        saved.setdefault(value.untyped_storage().data_ptr(), value)
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        model.losses(model(batch), batch)["loss"].mean()
    return sum(
        value.untyped_storage().nbytes()
        for address, value in saved.items()
        if address not in parameters
    )


def groups_of(lengths: Int[np.ndarray, " texts"], size: int) -> list[list[int]]:
    """Rows of short, middling and long texts, from the middle of each third by length.

    Args:
        lengths: of the texts, in words.
        size: texts of each group.

    >>> groups_of(np.array([9, 1, 8, 2, 7, 3, 6, 4, 5, 5, 5, 5]), 2)
    [[3, 5], [9, 10], [4, 2]]
    """
    order = np.argsort(lengths, kind="stable")
    groups = []
    for group in range(GROUPS):
        middle = round((2 * group + 1) * len(order) / (2 * GROUPS))
        start = middle - size // 2
        groups.append(order[start : start + size].tolist())
    return groups


def measured_costs(config: DictConfig) -> Costs:
    """Time training, a figure and probes on a few batches of an untrained model.

    The probes come last, those that the answer goes by first: where the time is up meanwhile, the
    other costs are known. Nothing is written.

    Args:
        config: the composed configuration of a run.

    Raises:
        TimeIsUp: the time is up before a training is timed.
    """
    settings = Settings.of(config)
    parts = settings.parts
    data = parts.data

    start = perf_counter()
    data.setup("fit")
    with torch.random.fork_rng():
        torch.manual_seed(parts.seed)
        model = untrained(parts, data)
    preparing = perf_counter() - start

    tell_section(str(data.name), data.section)
    on_gpu = torch.cuda.is_available() and parts.trainer.accelerator in ("auto", "gpu", "cuda")
    device = "cuda" if on_gpu else "cpu"
    model.to(device).train()

    training = 0.0
    if parts.training.epochs:
        training = _training_cost(model, data, parts.training.epochs)
    figure = _figure_cost()
    spent: Counter[str] = Counter()
    answering = math.inf
    probing = math.inf
    with suppress(TimeIsUp):
        answering = _answering_cost(settings, model, data)
        runner = ProbeRunner(list(parts.probe.values()), 0, parts.importance)
        runner.prepare(model, data.splits, data)
        probing = _probing_cost(runner, model, data, spent)
    shares = {name: seconds / max(spent.total(), 1e-9) for name, seconds in spent.items()}
    return Costs(
        rows=data.sizes,
        training=training,
        probing=probing,
        device=device,
        each=preparing,
        figure=figure,
        page=PAGE_SECONDS * slowness(),
        shares=shares,
        answering=answering,
    )


def slowness() -> float:
    """Seconds of the clock for a second of this process's own work so far; 1 or more.

    Other work on the machine makes it larger.
    """
    return max(1.0, seconds_of_process() / process_time())


def _answering_cost(settings: Settings, model: TrainedModel, data: TextDataModule) -> float:
    """Seconds per test example of the probes of `ANSWERING`, on a test split of `ANSWERED` texts.

    What such a probe does once for all texts is in it as well, as if it came again with as many.
    """
    parts = settings.parts
    probes = [probe for name, probe in parts.probe.items() if name in ANSWERING]
    if not probes:
        return math.inf
    test = data.splits["test"]
    step = max(1, len(test) // ANSWERED)
    few = test.select(np.arange(len(test))[::step][:ANSWERED])
    runner = ProbeRunner(probes, 0, parts.importance)
    runner.prepare(model, {**data.splits, "test": few}, data)
    with CLOCK.step("time the first test"), model.eval().precisely():
        return probing_seconds(runner, model, few[list(range(len(few)))].to(model.device))


def _training_cost(model: TrainedModel, data: TextDataModule, epochs: int) -> float:
    """Seconds per training example and epoch, passes without training included.

    A step is a forward and a backward pass, which costs about twice as much, so that a forward pass
    is a third of a step. An epoch ends with a forward pass over the validation split; after the
    last one the trained model reads the training texts once more.
    """
    assert model.recipe is not None
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = model.recipe.optimizer([{"params": trainable}])
    batches = list(data.train_dataloader())
    spread = {
        round(number * (len(batches) - 1) / max(1, STUDY_BATCHES - 1))
        for number in range(STUDY_BATCHES)
    }

    # the middle one first and once more: the first step pays for what is set up once
    numbers = [len(batches) // 2, *sorted(spread)]
    steps = [
        training_seconds(model, batches[number].to(model.device), optimizer)
        for number in CLOCK.track(numbers, "time a training", "batches")
    ]
    forward_passes = data.sizes["validation"] / data.sizes["train"] + 1 / epochs
    return median(steps[-4:]) * (1 + forward_passes / 3)


def _probing_cost(
    runner: ProbeRunner, model: TrainedModel, data: TextDataModule, spent: Counter[str]
) -> float:
    """Seconds per test example, all probes together; `spent` gets every probe's."""
    test = data.splits["test"]

    def batch_seconds(rows: list[int]) -> float:
        batch = test[rows].to(model.device)
        return len(rows) * probing_seconds(runner, model, batch, spent)

    with model.eval().precisely():
        # The first text pays for what is set up once, such as a pass over the whole split. It is
        # no test's time per text
        first = groups_of(test.words.lengths, 1)[1]
        probing_seconds(runner, model, test[first].to(model.device))
        return seconds_per_text(batch_seconds, test.words.lengths, data.settings.eval_batch_size)


def _figure_cost() -> float:
    """Seconds for one figure of a page: the median of a few, as other work will go on.

    The first one, which loads the fonts, is left out.
    """
    seconds = []
    for _ in range(FIGURES):
        start = perf_counter()
        with paper_style():
            figure = Figure(figsize=(3.3, 2.6))
            figure.subplots().scatter(np.arange(400) % 20, np.arange(400) / 20)
            for kind in ("svg", "pdf"):
                figure.savefig(BytesIO(), format=kind)
        seconds.append(perf_counter() - start)
    return COST_OF_FIGURE * median(seconds[1:])


def seconds_per_text(
    batch_seconds: Callable[[list[int]], float],
    lengths: Int[np.ndarray, " texts"],
    batch_size: int,
) -> float:
    """Estimate what a text costs in large batches, from a few short, middling and long texts.

    The model of the cost: a batch of n texts takes b + n·t, where b is the batch's own cost and t
    the cost of a text. Two batches of middling texts, of n and of m < n texts, determine b; the
    mean over the groups, each of n texts, then determines the mean t:

        T(n) = b + n·t and T(m) = b + m·t   give   b = (n·T(m) - m·T(n)) / (n - m)
        mean T(n) / n = b/n + mean t        gives  mean t = mean T(n) / n - b/n

    Args:
        batch_seconds: the seconds that these rows take as one batch.
        lengths: of the texts, in words.
        batch_size: texts of the batches to come.

    Returns:
        mean t + b / `batch_size`. Where the groups would take longer than `MAX_SECONDS`, T(m) / m,
        which is too much rather than too little; where they are too small to tell b from t, b = 0.
    """
    groups = groups_of(lengths, max(1, min(STUDY_TEXTS, len(lengths) // GROUPS)))
    middle = groups[GROUPS // 2]
    size = len(middle)
    small_size = min(SMALL_BATCH, size)

    small_seconds = batch_seconds(middle[:SMALL_BATCH])
    is_slow = small_seconds / small_size * GROUPS * size > MAX_SECONDS
    if small_size < size and is_slow:
        return small_seconds / small_size

    seconds = [batch_seconds(rows) for rows in groups if rows]
    batch_cost = 0.0
    if small_size < size:
        middle_seconds = seconds[len(seconds) // 2]
        difference = size * small_seconds - small_size * middle_seconds
        batch_cost = max(0.0, difference / (size - small_size))
    mean_seconds = sum(seconds) / len(seconds)
    text_cost = max(0.0, mean_seconds / size - batch_cost / size)
    return text_cost + batch_cost / batch_size
