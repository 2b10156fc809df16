from dataclasses import replace

import torch
from hydra.utils import instantiate

from attnprobe.core.batch import Outputs
from tests.importance.subjects import subject_of
from tests.small_runs import SMALL, composed


def small_data(**overrides):
    data = instantiate(
        composed(*SMALL, *(f"{key}={value}" for key, value in overrides.items())).data, seed=0
    )
    data.setup()
    return data


def batch_of(data, split="test"):
    return data.splits[split][list(range(len(data.splits[split])))]


def subject_on(batch, predicted):
    """A subject whose model, of no importance here, predicts these classes of two."""
    logits = torch.nn.functional.one_hot(predicted, 2).double()
    nothing = torch.zeros(batch.ids.shape, dtype=torch.float64)
    outputs = Outputs(logits, nothing, nothing, nothing.unsqueeze(-1), batch.content)
    return replace(subject_of(), batch=batch, outputs=outputs)
