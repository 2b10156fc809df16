"""The weights of a run: trained, or those of a training that was finished before."""

from typing import Any

from lightning.pytorch.loggers import Logger
from omegaconf import OmegaConf
from safetensors.torch import load_file, save_file

from attnprobe.core.errors import UserError
from attnprobe.data.module import TextDataModule
from attnprobe.models.trained import TrainedModel
from attnprobe.results.directory import CONFIG, PIPELINE, UNTESTED, VOCABULARY, WEIGHTS, examples_file
from attnprobe.results.files import records_of, write_atomically, write_text
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.writer import CHECKPOINTS, OwnRunDirectory
from attnprobe.runs.collecting import PredictionCollector
from attnprobe.runs.forecasts import Forecast
from attnprobe.runs.logger import NamedWandbLogger, Progress
from attnprobe.runs.settings import Settings
from attnprobe.runs.training import fit, listen


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
        if isinstance(logger, NamedWandbLogger) and logger.tells_names:
            logger.classes = data.classes
        forecast = Forecast(data.splits["train"], batch_size=settings.config["data"]["batch_size"])
        epoch, curve = fit(
            classifier,
            data,
            checkpoints=directory.folder(CHECKPOINTS),
            epochs=settings.config["training"]["epochs"],
            gradient_clip=settings.config["training"]["gradient_clip"],
            patience=settings.config["training"].get("patience"),
            hardware=settings.config["trainer"],
            callbacks=[forecast, Progress()],
            logger=logger,
        )
    write_text(OmegaConf.to_yaml(settings.config), directory.place(CONFIG))
    directory.place(PIPELINE)
    data.pipeline.save(directory.place(VOCABULARY).parent)
    # those that share memory copied: a file of safetensors holds each once
    weights = {name: weight.detach().clone().contiguous() for name, weight in classifier.state_dict().items()}
    write_atomically(directory.place(WEIGHTS), lambda path: save_file(weights, path))
    untested = [split for split in UNTESTED if split in data.splits]
    predictions = {split: PredictionCollector(number) for number, split in enumerate(untested)}
    if untested:
        listen(classifier, data, "predict", hardware=settings.config["trainer"], callbacks=list(predictions.values()))
    for split, collector in predictions.items():
        collector.write(data.splits[split], directory.place(examples_file(split)))
    trained = {
        "chosen_epoch": epoch,
        "data_fingerprint": data_fingerprint,
        "inputs": records_of(settings.input_files()),
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "curve": curve,
    }
    return directory.finish_training(trained)
