"""The schema of conf/config.yaml: what it may hold at its top, and in training, trainer, logger, launcher and task.

The parts that are constructed (`_target_`) are described by their classes; see `attnprobe.schema.check`.
"""

from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le

from attnprobe.schema.ranges import Count, Positive, Seed, Whole
from attnprobe.schema.types import Name, Number, Part

Optional = str | None

TOP: dict[str, Any] = {
    "data": Part,
    "model": dict[str, Any],
    "training": dict[str, Any],
    "trainer": dict[str, Any],
    "logger": dict[str, Any],
    "launcher": dict[str, Any],
    "task": dict[str, Any],
    "importance": dict[str, Part],
    "importances": list[Name] | None,
    "probe": dict[str, Part],
    "study": Part | None,
    "experiment": Name,
    "seed": Seed,
    "output": str,
    "teacher": Optional,
    "teacher_id": Optional,
    "teacher_overrides": list[str],
    "run_dir": Optional,
    "trusted": list[str] | str,
    "run": Optional,
    "on_finished": Literal["error", "skip", "remeasure", "replace"] | None,
    "figures": bool,
}
MODEL: dict[str, Any] = {
    "name": Name,
    "attention_name": str,
    "width": Annotated[int, Ge(1), Le(1_000_000)],
    "patience": Count,
    "encoder": Part,
    "attention": Part,
    "decoder": Part,
    "question_encoder": Part | None,
}
TRAINING: dict[str, Any] = {
    "epochs": Annotated[int, Ge(0), Le(1_000_000)],
    "gradient_clip": Positive | None,
    "patience": Whole | None,
    "recipe": Part,
}
TASK: dict[str, Any] = {"name": Literal["classification", "qa"], "epsilon": Annotated[Number, Ge(0), Le(1)]}
TRAINER: dict[str, Any] = {
    "accelerator": Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu", "hpu"],
    "devices": Annotated[int, Ge(-1)] | list[Whole] | str,
}
NONE: dict[str, Any] = {"name": Literal["none", "csv", "tensorboard"]}
MLFLOW: dict[str, Any] = {"name": Literal["mlflow"], "project": str, "tracking_uri": Optional}
WANDB: dict[str, Any] = {
    "name": Literal["wandb"],
    "project": Optional,
    "entity": Optional,
    "group": Optional,
    "mode": Literal["online", "offline", "disabled", "shared"],
    "log_text": bool,
    "log_model": bool,
    "examples": Whole,
}
LOGGERS = {"none": NONE, "csv": NONE, "tensorboard": NONE, "mlflow": MLFLOW, "wandb": WANDB}
LAUNCHERS: dict[str, dict[str, Any]] = {
    "inline": {"name": str},
    "local": {"name": str, "workers": Count | None},
    "ray": {"name": str},
    "submitit": {
        "name": str,
        "cluster": Literal["slurm", "local"],
        "workers": Count,
        "parameters": dict[str, Any],
    },
}
PARAMETERS: dict[str, Any] = {
    "timeout_min": Positive,
    "cpus_per_task": Count,
    "mem_gb": Annotated[Number, Gt(0)],
    "gpus_per_node": Whole,
    "slurm_partition": Optional,
    "slurm_account": Optional,
}
"""Of launcher.parameters; any other of submitit's names is taken as it is."""

BASES = {
    "data": "attnprobe.data.module.TextDataModule",
    "data.source": "attnprobe.data.sources.Source",
    "model": "attnprobe.models.trained.TrainedModel",
    "model.encoder": "attnprobe.models.encoders.TextEncoder",
    "model.question_encoder": "attnprobe.models.encoders.Encoder",
    "model.attention": "attnprobe.models.attention.Attention",
    "model.decoder": "attnprobe.models.decoders.Decoder",
    "training.recipe": "attnprobe.models.classifier.Recipe",
    "training.recipe.objective": "attnprobe.models.objectives.Objective",
    "study": "attnprobe.studies.base.Study",
    "probe.*": "attnprobe.probes.base.Probe",
    "importance.*": "attnprobe.importance.base.Importance",
}
"""What each part has to be a subclass of, where its source shows what it is a subclass of."""
