"""The game of attention: what the words of a subset say together, and each word's part in it."""

import numpy as np
import torch
from torch import Tensor

from attnprobe.exact import shapley_values


def shapley_of_means(weights: np.ndarray, payoffs: np.ndarray) -> Tensor:
    """Shapley values over all subsets of words: a subset says the weighted mean of its payoffs.

    Subset number n has word k if bit k of n is set; the empty one says 0.
    """
    words = np.arange(len(weights))
    game = np.zeros(2 ** len(weights))
    for number in range(1, len(game)):
        members = (number >> words) & 1 == 1
        game[number] = np.average(payoffs[members], weights=weights[members])
    (values,) = shapley_values(torch.from_numpy(game)[None])
    return values
