"""One text of a toy by itself, as NumPy has it: a reference shares no arithmetic with the probe."""

from dataclasses import dataclass

import numpy as np

from attnprobe.importance.base import Subject


@dataclass(frozen=True)
class Text:
    """One text of a batch that a model has read, without its markers and its padding."""

    subject: Subject
    row: int

    def at_words(self, column):
        """A column of the batch or of the model's outputs at the words of this text."""
        content = self.subject.batch.content[self.row]
        return column[self.row][content].detach().numpy()

    @property
    def weights(self):
        return self.at_words(self.subject.readout.attention)

    @property
    def logits(self):
        """What the model says under attention to one word alone: `[words, classes]`."""
        return self.at_words(self.subject.readout.position_logits)

    def scores(self, name):
        """What an importance gives each word."""
        return self.at_words(self.subject.scores(name))


def numbers_of(values, row):
    """Metric → the number of one text, of what a probe measures of a batch."""
    numbers = {}
    for metric, value in values.items():
        if value.ndim == 1:
            numbers[metric] = value[row].item()
    return numbers


def overlap_of_top(a, b, count):
    """The share of the `count` largest scores that both have in common."""
    top_of_a = set(np.argsort(-a)[:count])
    top_of_b = set(np.argsort(-b)[:count])
    return len(top_of_a & top_of_b) / count
