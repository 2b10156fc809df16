"""What is counted in the training texts, word by word, for importances that know the word and nothing else."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.data.module import TextDataModule
from attnprobe.errors import UserError
from attnprobe.importance.base import Importance, Subject


@dataclass(frozen=True)
class TrainingWords(Importance):
    """An importance that is a table of the vocabulary's words, filled from the training texts before anything is trained."""

    of_words: ClassVar[bool] = True
    _table: list[Float[Tensor, "vocabulary columns"]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def table(self, data: TextDataModule) -> Float[np.ndarray, "vocabulary columns"]:
        """The score of each word of the vocabulary, in one column, or in one per class."""
        raise NotImplementedError

    def prepare(self, data: TextDataModule, split: str) -> None:
        """Count."""
        self._table[:] = [torch.from_numpy(self.table(data))]

    def prepare_texts(self, texts: object, tokens: object) -> None:
        """Refuse: a run that is loaded does not hold its training texts.

        Raises:
            UserError: always.
        """
        raise UserError(
            f"importance {self.name} counts the training texts, which a loaded run does not hold: it is known for a run's "
            f"own test texts, as its tables have it"
        )

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """The words' scores; of a table with a column per class that of the predicted one."""
        table = self._table[0].to(subject.batch.ids.device)
        column = torch.zeros_like(subject.batch.example_id)
        if table.shape[1] > 1:
            column = subject.outputs.logits.argmax(-1)
        return table[subject.batch.ids, column.unsqueeze(-1)]
