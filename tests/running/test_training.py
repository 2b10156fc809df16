import pytest
from lightning import LightningDataModule
from torch.optim import SGD
from torch.utils.data import DataLoader

from attnprobe.running.training import fit
from tests.toys import recipe, toy_batch, toy_classifier


class Toy(LightningDataModule):
    def train_dataloader(self):
        return DataLoader([toy_batch([4, 5, 3])], batch_size=None)

    val_dataloader = train_dataloader


@pytest.mark.parametrize(("patience", "epochs"), [(None, 7), (2, 3)])
def test_patience_ends_a_training_that_gets_no_better(patience, epochs, tmp_path):
    classifier = toy_classifier().train()
    # nothing is learned: the first epoch stays the best
    classifier.recipe = recipe(skip_epochs=0, selection_metric="accuracy", optimizer=lambda groups: SGD(groups, lr=0.0))
    hardware = {"accelerator": "cpu", "devices": 1, "enable_progress_bar": False}
    chosen, curve = fit(
        classifier, Toy(), directory=tmp_path, epochs=7, gradient_clip=None, hardware=hardware, callbacks=[], logger=None,
        patience=patience,
    )  # fmt: skip
    assert (chosen, len(curve)) == (0, epochs)
