import warnings

import pytest
import torch
from lightning import Callback, LightningDataModule
from torch.optim import SGD
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from attnprobe.core.errors import UserError
from attnprobe.runs.run import run
from attnprobe.runs.training import fit, quiet_lightning
from tests.small_runs import small_run
from tests.toys import recipe, toy_batch, toy_classifier


class Toy(LightningDataModule):
    def train_dataloader(self):
        return DataLoader([toy_batch([4, 5, 3])], batch_size=None)

    val_dataloader = train_dataloader


HARDWARE = {"accelerator": "cpu", "devices": 1, "enable_progress_bar": False}


def fitted(
    classifier,
    folder,
    epochs,
    *,
    data=None,
    gradient_clip=None,
    callbacks=(),
    logger=None,
    patience=None,
    stop_at=None,
):
    """Train on a toy batch; the chosen epoch and each epoch's metrics."""
    return fit(
        classifier,
        data or Toy(),
        checkpoints=folder / "checkpoints",
        epochs=epochs,
        gradient_clip=gradient_clip,
        hardware=HARDWARE,
        callbacks=list(callbacks),
        logger=logger,
        patience=patience,
        stop_at=stop_at,
    )


@pytest.mark.parametrize(
    ("advice", "is_shown"),
    [("GPU available but not used. You can set it by doing …", False), ("The loss is NaN", True)],
)
def test_advice_against_what_was_chosen_is_not_shown(advice, is_shown):
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with quiet_lightning():
            warnings.warn(advice, stacklevel=1)
    assert bool(shown) == is_shown


@pytest.mark.parametrize(("patience", "epochs"), [(None, 7), (2, 3)])
def test_patience_ends_a_training_that_gets_no_better(patience, epochs, tmp_path):
    classifier = toy_classifier().train()
    # nothing is learned: the first epoch stays the best
    classifier.recipe = recipe(
        skip_epochs=0, selection_metric="accuracy", optimizer=lambda groups: SGD(groups, lr=0.0)
    )
    chosen, curve = fitted(classifier, tmp_path, 7, patience=patience)
    assert (chosen, len(curve)) == (0, epochs)


@pytest.mark.parametrize(
    ("skip", "values", "patience", "expected"),
    [
        (0, [0.5, 0.7, 0.6], None, (1, 3, 0.5)),
        # an epoch that is not skipped beats all skipped ones, which neither end the training nor
        # lower the rate
        (2, [0.9, 0.8, 0.1, 0.2, 0.15, 0.1, 0.3], 2, (3, 6, 0.125)),
        (2, [0.9, 0.95, -40.0, -50.0], None, (2, 4, 0.5)),
        # nothing but skipped epochs: the best of them, however little better
        (5, [0.900001, 0.900003, 0.900002], None, (1, 3, 0.5)),
        (3, [0.900001, 0.900003, 0.900002], None, (1, 3, 0.5)),
    ],
)
def test_skipped_epochs_are_chosen_only_among_themselves(
    skip, values, patience, expected, tmp_path, monkeypatch
):
    classifier = toy_classifier().train()
    schedulers = []

    def plateau(optimizer):
        scheduler = ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0, threshold=0)
        schedulers.append(scheduler)
        return scheduler

    classifier.recipe = recipe(
        skip_epochs=skip, optimizer=lambda groups: SGD(groups, lr=1.0), scheduler=plateau
    )
    scripted = iter(values)

    def compute():
        return {"f1": torch.zeros(2), "roc_auc": torch.tensor(next(scripted))}

    monkeypatch.setattr(classifier.validation_performance, "compute", compute)
    chosen, curve = fitted(classifier, tmp_path, len(values), gradient_clip=1.0, patience=patience)
    assert (chosen, len(curve), schedulers[0].get_last_lr()[0]) == expected


@pytest.mark.parametrize(("stop_at", "epochs"), [(None, 4), (0.6, 2), (0.95, 4)])
def test_an_epoch_that_is_good_enough_ends_the_training(stop_at, epochs, tmp_path, monkeypatch):
    classifier = toy_classifier().train()
    classifier.recipe = recipe(skip_epochs=0)
    scripted = iter([0.5, 0.7, 0.6, 0.9])

    def compute():
        return {"f1": torch.zeros(2), "roc_auc": torch.tensor(next(scripted))}

    monkeypatch.setattr(classifier.validation_performance, "compute", compute)
    chosen, curve = fitted(classifier, tmp_path, 4, stop_at=stop_at)
    assert (chosen, len(curve)) == (epochs - 1, epochs)


def test_an_epoch_is_not_chosen_by_what_its_texts_do_not_define(tmp_path):
    """Texts of one class alone have no area under a curve: every epoch would seem as good."""

    class OneClass(Toy):
        def val_dataloader(self):
            batch = toy_batch([4, 5, 3])
            batch.labels[:] = 1
            return DataLoader([batch], batch_size=None)

    classifier = toy_classifier().train()
    classifier.recipe = recipe(skip_epochs=0)
    with pytest.raises(UserError, match=r"selection_metric=roc_auc.*validation.*=loss"):
        fitted(classifier, tmp_path, 2, data=OneClass())


class FillRecorder(Callback):
    """Records whether PyTorch fills new tensors while a model is trained."""

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.is_filled = torch.utils.deterministic.fill_uninitialized_memory


def test_new_tensors_are_not_filled_in_a_training(tmp_path):
    classifier = toy_classifier().train()
    recorder = FillRecorder()
    before = torch.utils.deterministic.fill_uninitialized_memory
    classifier.recipe = recipe()
    fitted(classifier, tmp_path, 1, callbacks=[recorder])
    assert not recorder.is_filled
    assert torch.utils.deterministic.fill_uninitialized_memory is before


SBATCH_OF_TWO_TASKS = {
    "SLURM_NTASKS": "2",
    "SLURM_JOB_ID": "7",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}


@pytest.mark.parametrize("environment", [{}, SBATCH_OF_TWO_TASKS], ids=["login", "sbatch"])
def test_a_slurm_machine_changes_nothing(tmp_path, monkeypatch, recwarn, environment):
    """Lightning would warn of an `srun` that is not used, and refuse `sbatch --ntasks=2`."""
    srun = tmp_path / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text("#!/bin/sh\nexit 1\n")
    srun.chmod(0o755)
    monkeypatch.setenv("PATH", str(srun.parent), prepend=":")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    run(small_run(tmp_path / "runs", "model=average"))
    assert not [warning for warning in recwarn if "srun" in str(warning.message)]


def test_several_tasks_of_srun_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    with pytest.raises(UserError, match=r"2 times .*expected --ntasks=1"):
        run(small_run(tmp_path / "others"))
    assert not (tmp_path / "others").exists()
