"""How much memory a training step takes at least, measured on two of the longest texts and said beforehand: where the memory
of a machine ends, its system stops the process without a word."""

import numpy as np
import torch
from torch import Tensor

from attnprobe.batch import Batch
from attnprobe.data.batching import TextSplit
from attnprobe.models.trained import TrainedModel

TEXTS = 2
"""How many of the longest texts are looked at."""
MUCH = 4e9
"""Bytes below which nothing is said."""
PER_PARAMETER = 4
"""Numbers that are kept for each parameter: itself, its gradient, and AdamW's two means."""


def tell_expected_memory(classifier: TrainedModel, split: TextSplit, batch_size: int) -> None:
    """Print how much memory a step with the longest texts takes at least, in full precision, if that is 4 GB or more: the
    parameters, and what is kept for the way back. What lives for a moment comes on top of it (a third more was seen). The
    model and the state of the random numbers stay as they were.

    Args:
        classifier: before its training, on the device where it is; nothing is said of one that reads no pieces.
        split: what it is trained on.
        batch_size: texts in a step.
    """
    if classifier.reader is None or len(split) < TEXTS:
        return
    longest = np.argsort(split.words.lengths, kind="stable")[-TEXTS:].tolist()
    training = classifier.training
    try:
        with torch.random.fork_rng():
            classifier.train()
            per_text = saved_bytes(classifier, split[longest].to(classifier.device)) / TEXTS
    finally:
        classifier.train(training)
    own = PER_PARAMETER * sum(part.numel() * part.element_size() for part in classifier.parameters())
    batch_size = min(batch_size, len(split))
    expected = own + per_text * batch_size
    if expected < MUCH:
        return
    fewer = max(1, batch_size // 4)
    print(
        f"training takes at least {expected / 1e9:.0f} GB of memory for a step with {batch_size} of the longest texts; "
        f"data.batch_size={fewer} would take {(own + per_text * fewer) / 1e9:.0f}",
        flush=True,
    )


def saved_bytes(classifier: TrainedModel, batch: Batch) -> int:
    """What a pass forward keeps for the pass back, parameters not among it; each stretch of memory once."""
    own = {part.untyped_storage().data_ptr() for part in classifier.parameters()}
    found: dict[int, Tensor] = {}

    def note(value: Tensor) -> Tensor:
        # held on to until all are counted, so that no stretch is given out twice
        found.setdefault(value.untyped_storage().data_ptr(), value)
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        classifier.losses(classifier(batch), batch)["loss"].mean()
    return sum(value.untyped_storage().nbytes() for place, value in found.items() if place not in own)
