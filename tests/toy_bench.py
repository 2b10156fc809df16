"""A bench of two rules whose models are tables: one word decides, and says what it says."""

import numpy as np
import torch

from attnprobe.findings.bench.folder import BenchFolder, BenchModel, BenchText
from attnprobe.importance.word_swaps import KeptWords

PAIRS = 100
RULES = {"token": ("lstm", "cnn"), "recency": ("lstm",)}
ABSENCE = "absence"
"""A rule of which no word decides any text."""


def toy_text(number, words=6, decides=True):
    """A text of class 0 or 1; with the word that decides the model is sure, else it is even."""
    draw = torch.Generator().manual_seed(number)
    kept = torch.rand(PAIRS, words, generator=draw) < 0.5
    place = number % words
    label = number % 2

    def outcome(has_reason):
        noise = 0.1 * torch.rand(PAIRS, generator=draw).double()
        sure = torch.where(has_reason & decides, 0.9, 0.5) + noise
        other = 1 - sure
        return torch.stack([sure, other] if label == 0 else [other, sure], -1)

    deciding = np.arange(words) == place
    has_reason = kept[:, place]
    sets = KeptWords(kept, outcome(has_reason), outcome(~has_reason))
    return BenchText(
        example_id=10 + number,
        words=(*(f"w{position}" for position in range(words - 1)), f"text{number}"),
        deciding=deciding & decides,
        attention=np.full(words, 1 / words),
        label=label,
        prediction=label,
        sets=sets,
    )


def toy_model(rule="token", encoder="lstm", **facts):
    known = {
        "name": f"{rule}--{encoder}",
        "rule": rule,
        "kind": rule,
        "encoder": encoder,
        "attention": "learned",
        "draw": 0,
        "half": "development",
        "classes": 2,
        "texts": 40,
        "passes": 2 * PAIRS,
        "accuracy": 1.0,
        "follows": 1.0,
        "is_solved": True,
    }
    return BenchModel(**known | facts)


def write_bench(path, absence=False):
    """The bench in a folder.

    Args:
        path: of the folder.
        absence: with a model that no word moves, and one that has learnt nothing.
    """
    bench = BenchFolder(path)
    for rule, encoders in RULES.items():
        for encoder in encoders:
            bench.add(toy_model(rule, encoder), [toy_text(number) for number in range(40)])
    if absence:
        texts = [toy_text(number, decides=False) for number in range(40)]
        bench.add(toy_model(ABSENCE), texts)
        bench.add(toy_model("parity", is_solved=False, texts=0), [])
    return bench
