import warnings
from contextlib import contextmanager

import pytest
import torch

from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.settings import Settings
from attnprobe.runs.trackers import TrackedRun
from tests.runs.test_training import fitted
from tests.small_runs import small_run
from tests.toys import recipe, toy_classifier


@contextmanager
def toy_training(tmp_path, *overrides):
    """Train a toy for two epochs with the chosen logger.

    Yields the directory and each epoch's metrics.
    """
    settings = Settings.of(small_run(tmp_path, *overrides))
    directory = OwnRunDirectory(tmp_path / "run")
    directory.mark()
    classifier = toy_classifier().train()
    classifier.recipe = recipe(skip_epochs=0, selection_metric="accuracy")
    run = TrackedRun(settings.identity("all"), settings.config, directory)
    with settings.parts.logger.opened(run) as logger:
        _, curve = fitted(classifier, tmp_path, 2, logger=logger)
    yield directory, curve


def test_tensorboard_reads_the_curve_that_the_run_has(tmp_path):
    pytest.importorskip(
        "tensorboard", reason="no tensorboard: pip install 'attnprobe[tensorboard]'"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # its own protocol buffers
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        with toy_training(tmp_path, "logger=tensorboard") as (directory, curve):
            directory.place("config.yaml").write_text("a: 1\n")
            listed = directory.finish_training({})["files"]
            assert any(name.startswith("training/events") for name in listed)
            events = EventAccumulator(str(directory / "training"))
            events.Reload()
    logged = [event.value for event in events.Scalars("validation/loss")]
    losses = [float(torch.tensor(epoch["validation/loss"])) for epoch in curve]
    assert logged == pytest.approx(losses, rel=1e-6)
    assert len(logged) == 2
    assert "validation/selection" not in events.Tags()["scalars"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of mlflow's own use of SQLAlchemy
def test_mlflow_has_the_curve_that_the_run_has(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="no mlflow: pip install 'attnprobe[mlflow]'")
    with toy_training(tmp_path, "logger=mlflow") as (_, curve):
        mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
        (run,) = mlflow.search_runs(experiment_names=["attnprobe"], output_format="list")
        assert run.data.metrics["validation/loss"] == pytest.approx(curve[-1]["validation/loss"])
