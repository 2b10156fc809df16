"""The weights of a run: trained, or those of a training that was finished before."""

import shutil
from typing import Any

from lightning.pytorch.loggers import Logger
from safetensors.torch import load_file, save_file
from torch import Tensor

from attnprobe.data.module import TextDataModule
from attnprobe.errors import UserError
from attnprobe.models.trained import TrainedModel
from attnprobe.results.directory import (
    CHECKPOINTS,
    PIPELINE,
    UNTESTED,
    VOCABULARY,
    WEIGHTS,
    examples_file,
)
from attnprobe.results.files import write_atomically
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.ownership import OwnRunDirectory
from attnprobe.running.collecting import PredictionCollector
from attnprobe.running.devices import is_worker_rank
from attnprobe.running.expecting import tell_expected_training
from attnprobe.running.logger import name_curves
from attnprobe.running.memory import tell_expected_memory
from attnprobe.running.prepare import input_records
from attnprobe.running.progress import ExampleProgress
from attnprobe.running.settings import Settings
from attnprobe.running.training import fit, predict


def train(
    settings: Settings,
    directory: OwnRunDirectory,
    data: TextDataModule,
    classifier: TrainedModel,
    logger: Logger | None,
) -> dict[str, Any]:
    """Train, or load the weights of a training that was finished before."""
    data_fingerprint = data.fingerprint
    if directory.is_trained:
        trained = directory.training()
        if trained["data_fingerprint"] != data_fingerprint:
            raise UserError(
                f"{directory.path} was trained on other data under the same name: the files have changed since. Train "
                f"again with on_finished=replace, or elsewhere with output=…"
            )
        classifier.load_state_dict(load_file(directory / WEIGHTS))
        return trained
    epoch: int | None = None
    curve: list[dict[str, float]] = []
    if settings.config["training"]["epochs"]:
        directory.folder(CHECKPOINTS)
        name_curves(logger, data.classes)
        if not is_worker_rank():
            epochs = settings.config["training"]["epochs"]
            tell_expected_memory(classifier, data.splits["train"], settings.config["data"]["batch_size"])
            tell_expected_training(classifier, data.splits["train"], epochs, settings.config["trainer"])
        epoch, curve = fit(
            classifier,
            data,
            directory=directory.path,
            epochs=settings.config["training"]["epochs"],
            gradient_clip=settings.config["training"]["gradient_clip"],
            patience=settings.config["training"].get("patience"),
            hardware=settings.config["trainer"],
            callbacks=[ExampleProgress(data.sizes)],
            logger=logger,
        )
        shutil.rmtree(directory / CHECKPOINTS, ignore_errors=True)
    names = [VOCABULARY, PIPELINE, WEIGHTS, *map(examples_file, UNTESTED)]
    directory.declare(*names)
    data.pipeline.save(directory.path)
    write_atomically(directory / WEIGHTS, lambda path: save_file(separate(classifier), path))
    predictions = {split: PredictionCollector(directory.path, number) for number, split in enumerate(UNTESTED)}
    predict(classifier, data, hardware=settings.config["trainer"], callbacks=list(predictions.values()))
    for split, collector in predictions.items():
        collector.write(data.splits[split], directory / examples_file(split))
    trained = {
        "chosen_epoch": epoch,
        "data_fingerprint": data_fingerprint,
        "inputs": input_records(data),
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "curve": curve,
    }
    return directory.finish_training(trained, names)


def separate(classifier: TrainedModel) -> dict[str, Tensor]:
    """The weights, those that share memory copied: a file of safetensors holds each once."""
    return {name: weight.detach().clone().contiguous() for name, weight in classifier.state_dict().items()}
