"""Data sets that stand in a test, and are prepared as any other."""

import datasets

from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import Source

TRAIN = {"text": ["Good film", "a bad FILM", "good good", "bad"], "label": [1, 0, 1, 0]}
OTHER = {"text": ["unheard good", "bad bad"], "label": [1, 0]}


class InMemory(Source):
    def __init__(self, **splits):
        self.splits = splits

    def load(self):
        return {
            split: datasets.Dataset.from_dict(columns) for split, columns in self.splits.items()
        }


def ready(train=TRAIN, validation=OTHER, test=OTHER, **settings):
    """A prepared data set of these columns; a split that is None is not there."""
    splits = {"train": train, "validation": validation, "test": test}
    present = {split: columns for split, columns in splits.items() if columns is not None}
    data = TextDataModule("toy", InMemory(**present), embedding_size=4, **settings)
    data.setup()
    return data
