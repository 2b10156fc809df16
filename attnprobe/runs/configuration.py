"""What a run's settings consist of: `Configuration`, and a class per group of conf/ in it.

A limit stands on the field that it limits. `attnprobe.runs.validation.configured` constructs a
`Configuration` from composed settings; the run works with the objects in it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge

from attnprobe.core.errors import UserError
from attnprobe.core.settings import (
    Choice,
    Count,
    Name,
    Part,
    Portion,
    Positive,
    Section,
    SectionSettings,
    Size,
    Whole,
    check_arguments,
    check_value,
    shown,
)
from attnprobe.data.module import TextDataModule
from attnprobe.importance.base import Importance
from attnprobe.models.attention import Attention
from attnprobe.models.decoders import Decoder
from attnprobe.models.encoders import Encoder, TextEncoder
from attnprobe.models.recipe import Recipe
from attnprobe.probes.base import Probe
from attnprobe.runs.plain_settings import PlainSettings, TrainingLength
from attnprobe.runs.trackers import Tracker


@dataclass(frozen=True)
class Stages(Section):
    """A model trained from scratch, by its three stages; the data complete their classes.

    Attributes:
        name: what the model is called in tables and paths.
        question_encoder: reads a question, where the data ask one.
        attention_name: part of the default name.
        path: of the checkpoint that a pretrained encoder is read from.
        unit: what attention is looked at over: words, or sentences whose weight is the sum of their
            words' (`data.sentences` says what a sentence is).
        width: what the stages' sizes refer to.
        patience: epochs that training=serrano waits for this model.
    """

    settings_place: ClassVar[str] = "model"

    name: Name
    encoder: Callable[..., TextEncoder]
    attention: Callable[..., Attention]
    decoder: Callable[..., Decoder]
    question_encoder: Callable[..., Encoder] | None = None
    attention_name: str | None = None
    path: str | None = None
    unit: Literal["word", "sentence"] = "word"
    width: Size | None = None
    patience: Count | None = None


@dataclass(frozen=True, kw_only=True)
class Training(TrainingLength):
    """How long a model is trained, and by which recipe."""

    recipe: Recipe


@dataclass(frozen=True)
class Task(Section):
    """What the model is asked.

    Attributes:
        epsilon: how far the adversary may move the prediction, as total variation distance.
    """

    settings_place: ClassVar[str] = "task"

    name: Literal["classification", "qa", "labels"]
    epsilon: Portion


class Trainer(Section):
    """Where and how the arithmetic runs: arguments of lightning.Trainer."""

    settings_place: ClassVar[str] = "trainer"

    GIVEN_BY_RUN: ClassVar[tuple[str, ...]] = (
        "max_epochs",
        "gradient_clip_val",
        "deterministic",
        "logger",
        "callbacks",
        "num_sanity_val_steps",
        "enable_model_summary",
        "use_distributed_sampler",
        "default_root_dir",
        "inference_mode",
    )

    def __init__(
        self,
        *,
        accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu", "hpu"],
        devices: Annotated[int, Ge(-1)] | Sequence[Whole] | str,
        strategy: str,
        precision: Literal[
            "32-true",
            "64-true",
            "16-true",
            "bf16-true",
            "16-mixed",
            "bf16-mixed",
            "transformer-engine",
            "transformer-engine-float16",
            "32",
            "64",
            "16",
            "bf16",
            32,
            64,
            16,
        ],
        **further: Any,
    ) -> None:
        """Check the arguments that Lightning alone knows.

        Args:
            accelerator: the kind of device.
            devices: a number (-1: all), the numbers of some, or Lightning's text for them.
            strategy: how several devices share the work.
            precision: of the training.
            further: any other argument of lightning.Trainer that the run does not set itself.

        Raises:
            UserError: Lightning knows no such argument or strategy, or the run sets it.
        """
        for name in self.GIVEN_BY_RUN:
            if name in further:
                raise UserError(
                    f"trainer.{name}={shown(further[name])}: the run sets this itself; leave it out"
                )
        if further or strategy != "auto":
            import lightning  # takes 2 s, which a mistake elsewhere need not wait for
            from lightning.pytorch.strategies import StrategyRegistry

            strategies = ("auto", *StrategyRegistry.available_strategies())
            check_value("trainer.strategy", strategy, Literal[strategies])
            check_arguments("trainer", further, lightning.Trainer, {"num_nodes": Count})
        self.accelerator = accelerator
        self.arguments = {
            "accelerator": accelerator,
            "devices": devices,
            "strategy": strategy,
            "precision": precision,
            **further,
        }


@dataclass(frozen=True)
class Launcher(Choice):
    """Where the jobs of a sweep or a study run."""

    settings_place: ClassVar[str] = "launcher"

    name: str


@dataclass(frozen=True)
class InlineLauncher(Launcher):
    """One after the other in this process."""

    chosen_by: ClassVar[str] = "inline"


@dataclass(frozen=True)
class ForecastLauncher(Launcher):
    """Nowhere: what a sweep would take is said."""

    chosen_by: ClassVar[str] = "forecast"


@dataclass(frozen=True)
class LocalLauncher(Launcher):
    """One process each on this machine.

    Attributes:
        workers: jobs at the same time; None: one per graphics card, or one for every two cores.
    """

    chosen_by: ClassVar[str] = "local"

    workers: Count | None


@dataclass(frozen=True)
class RayLauncher(Launcher):
    """On a Ray cluster."""

    chosen_by: ClassVar[str] = "ray"


class SubmititParameters(Section):
    """What submitit asks a cluster for; any other of submitit's names is taken as it is."""

    settings_place: ClassVar[str] = "launcher.parameters"

    def __init__(
        self,
        *,
        timeout_min: Positive | None = None,
        mem_gb: Positive | None = None,
        cpus_per_task: Count | None = None,
        gpus_per_node: Whole | None = None,
        slurm_partition: str | None = None,
        slurm_account: str | None = None,
        **further: Any,
    ) -> None: ...


@dataclass(frozen=True)
class SubmititLauncher(Launcher):
    """One job of a SLURM cluster each.

    Attributes:
        workers: at most so many are in the queue or running.
    """

    chosen_by: ClassVar[str] = "submitit"

    cluster: Literal["slurm", "local"]
    workers: Count
    parameters: SubmititParameters


@dataclass(frozen=True)
class Configuration(PlainSettings):
    """The settings of conf/config.yaml, every part of them constructed.

    `model` is `Stages`, or constructs a whole `attnprobe.models.trained.TrainedModel`; `study` is
    an `attnprobe.findings.studies.base.Study`. Their bases take seconds to import, which a mistake
    elsewhere need not wait for, so that the annotations of both say less.
    """

    data: TextDataModule
    model: SectionSettings
    training: Training
    trainer: Trainer
    logger: Tracker
    launcher: Launcher
    task: Task
    probe: Mapping[str, Probe]
    importance: Mapping[str, Importance]
    study: Part | None
