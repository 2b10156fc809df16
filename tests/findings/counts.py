"""Answers of calibration models for tests, made by hand."""

import pandas as pd

from attnprobe.findings.track_record import ABOUT_ANSWER, ABOUT_MODEL, NO, YES


def counts(right, wrong, level="word", encoder="lstm"):
    """What one claim `c` said of models with right and with wrong attention, each of its own rule.

    Args:
        right: (models, yes), all others no; None where none were measured.
        wrong: the same.
        level: of the claim.
        encoder: kind of model.
    """
    rows = []
    for truth, numbers in {"right": right, "wrong": wrong}.items():
        models, yes = numbers or (0, 0)
        for number in range(models):
            rows.append(
                {
                    "rule": f"rule {number}",
                    "family": encoder,
                    "encoder": encoder,
                    "mode": "run",
                    "truth": truth,
                    "criterion": "erasure",
                    "level": level,
                    "claim": "c",
                    "answer": YES if number < yes else NO,
                }
            )
    return pd.DataFrame(rows, columns=[*ABOUT_MODEL, *ABOUT_ANSWER])
