"""Batches that do not fit into memory are halved and tried again.

No number depends on the batch that it was computed in.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from attnprobe.core.batch import Batch
from attnprobe.core.clock import CLOCK, Step
from attnprobe.core.errors import UserError

Result = TypeVar("Result")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory, of the processor or of a GPU, is too small."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # PyTorch's words on a CPU, on Linux and on Windows; it has no class of its own for them
    phrases = ("can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)


@dataclass
class Halving:
    """Does something with a batch, or with parts of it that fit into memory.

    Attributes:
        count: how many times a part was halved.
        fits: positions at a time, by what is done.
    """

    count: int = 0
    fits: dict[str, int] = field(default_factory=dict)

    def __call__(
        self,
        task: str,
        batch: Batch,
        work: Callable[[slice], Result],
        *,
        rows_at_once: int | None = None,
    ) -> list[Result]:
        """Do the work on successive rows of the batch, normally on all of them at once.

        What did not fit is not tried again: later batches start with parts of fewer positions.

        Args:
            task: what is done, in words that fit "… does not fit into memory".
            batch: what it is done with.
            work: is given the rows; must leave nothing behind when it fails.
            rows_at_once: parts of more rows are halved without being tried (a single row is always
                tried), nor counted.

        Returns:
            One result per part, in the order of the rows.

        Raises:
            UserError: where a single text does not fit.
        """
        with CLOCK.step(task, len(batch), "texts") as step:
            return self._do_parts(task, batch, work, rows_at_once, step)

    def _do_parts(
        self,
        task: str,
        batch: Batch,
        work: Callable[[slice], Result],
        rows_at_once: int | None,
        step: Step,
    ) -> list[Result]:
        """Do the work on successive rows; `step` is told what is done."""
        width = batch.ids.shape[1]
        parts = [slice(0, len(batch))]
        results = []
        while parts:
            part = parts.pop()
            size = part.stop - part.start
            step.part = size
            if not self._is_hopeless(task, size, width, rows_at_once):
                try:
                    results.append(work(part))
                    step.done = part.stop
                    CLOCK.check()
                    continue
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                # not in the handler: the error holds on to the memory of what failed
                self._note_failure(task, size, width)
            middle = (part.start + part.stop) // 2
            parts += [slice(middle, part.stop), slice(part.start, middle)]
        return results

    def _is_hopeless(self, task: str, size: int, width: int, rows_at_once: int | None) -> bool:
        """Whether a part is larger than allowed, or than what fitted before."""
        if size == 1:
            return False
        exceeds_rows = rows_at_once is not None and size > rows_at_once
        return exceeds_rows or size * width > self.fits.get(task, size * width)

    def _note_failure(self, task: str, size: int, width: int) -> None:
        """Remember that a part did not fit, and say so the first time."""
        if size == 1:
            raise UserError(
                f"{task}: a text of {width:,} tokens does not fit into memory. Shorten the texts "
                f"with data.max_tokens, leave this probe out, or take a machine with more memory"
            )
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if self.count == 0:
            print(
                f"{task}: {size} texts of {width:,} tokens do not fit into memory at a time; they "
                f"are taken in halves, which changes no number. "
                f"data.eval_batch_size={max(1, size // 2)} spares the attempt",
                file=sys.stderr,
            )
        self.count += 1
        self.fits[task] = size * width // 2
