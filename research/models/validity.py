"""Necessity, stability and plausibility where what must come out is known."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.members import balanced_accuracy, compare_pairs, stability
from attnprobe.probes import plausibility
from attnprobe.runs.composition import composing
from attnprobe.runs.validation import configured
from research.models import audits
from research.models.cells import NEED, valid_settings
from research.models.training import kept_attentions, kept_parts, scores_of
from research.words.truth import batches


def validity(folder: Path, cell: str, seeds: int = 3) -> dict[str, object]:
    """How often audits say yes and no to necessity or stability, and what all seeds measure.

    Args:
        folder: of the models.
        cell: of `NEED` or `ALIKE`.
        seeds: of an audit.
    """
    learned = kept_parts(folder.glob(f"valid-{cell}-own-*.json"))
    row: dict[str, object] = {"cell": cell, "seeds": len(learned)}
    draw = np.random.default_rng(0)
    if cell not in NEED:
        pairs = compare_pairs(kept_attentions(folder, cell))
        row["measured"] = f"{stability(pairs).value:.3f}"
        return row | audits.shares_of_stability(pairs, seeds, draw)

    equal = kept_parts(folder.glob(f"valid-{cell}-equal-*.json"))
    learned_score = np.mean(scores_of(learned))
    equal_score = np.mean(scores_of(equal))
    row["measured"] = f"{learned_score:.3f} beside {equal_score:.3f}"
    verdicts = []
    for _ in range(audits.AUDITS):
        chosen = draw.permutation(len(learned))[:seeds]
        rivals = draw.permutation(len(equal))[:seeds]
        verdict = audits.verdict_on_gain(
            [learned[number] for number in chosen],
            [equal[number] for number in rivals],
            balanced_accuracy,
        )
        verdicts.append(verdict)
    return row | audits.shares_of(verdicts)


def plausible(folder: Path, cell: str) -> dict[str, object]:
    """How many models have their weight on the marked words of each text.

    The null are the marks of the next text of its length.
    """
    models = kept_attentions(folder, cell)
    marks = marks_of_texts(cell)
    numbers = pd.Series(range(len(marks)))
    texts_of_length = numbers.groupby([len(mark) for mark in marks])
    next_of_length = texts_of_length.transform(lambda texts: np.roll(texts, 1))
    shifted = [marks[number] for number in next_of_length]
    is_alone = next_of_length == numbers
    return {
        "cell": cell,
        "models": len(models),
        "yes, own marks": sum(is_on_marks(weights, marks) for weights in models),
        "yes, shifted": sum(is_on_marks(weights, shifted) for weights in models),
        "alone of their length": int(is_alone.sum()),
    }


def marks_of_texts(cell: str) -> list[np.ndarray]:
    """Which words of each test text are marked."""
    with composing():
        data = configured(valid_settings(cell) | {"seed": 0}).data
    data.setup("fit")
    (batch,) = batches(data, size=len(data.splits["test"]))
    assert batch.rationale is not None
    texts = zip(batch.rationale, batch.content, strict=True)
    return [marked[content].numpy() for marked, content in texts]


def is_on_marks(texts: Sequence[np.ndarray], marks: Sequence[np.ndarray]) -> bool:
    """Whether the weight is on the marks by more than chance, as the probe plausibility asks it."""
    masses = [weights[mark].sum() for weights, mark in zip(texts, marks, strict=True)]
    chance = np.array([mark.mean() for mark in marks])
    beyond_chance = np.array(masses) - chance
    gain = Evidence.of_ratio(np.stack([beyond_chance, 1 - chance], -1)[None])
    return gain.exceeds(0, plausibility.SMALLEST) == Verdict.MEETS
