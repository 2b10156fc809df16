"""What a model without context gains by the attentions of `GUIDES`."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.evidence.statistics import student
from research.models.cells import GUIDES
from research.models.training import kept_parts, scores_of


def transfer_table(folder: Path) -> pd.DataFrame:
    """Gain of the guided model over equal weights, and that of the exact read-out, by attention.

    Intervals are over draws.
    """
    models = guided_models(folder)
    scores = models["score"]
    lines = []
    for attention in GUIDES:
        if attention == "equal weights":
            continue
        gain = scores[attention] - scores["equal weights"]
        draw_gains = gain.groupby("draw").mean().dropna()
        mean, low, high = student(draw_gains.to_numpy())
        line = {
            "attention": attention,
            "draws": len(draw_gains),
            "guided": f"{scores[attention].mean():.3f}",
            "gain": f"{mean:.3f} [{low:.3f}, {high:.3f}]",
            "gain of the read-out": f"{models['read-out'][attention].mean():.3f}",
        }
        lines.append(line)
    return pd.DataFrame(lines)


def guided_models(folder: Path) -> pd.DataFrame:
    """A row per draw and seed: `score` and gain of the `read-out`, a column per attention."""
    rows = []
    for path in sorted(folder.glob("guide-*.json")):
        facts = json.loads(path.read_text())
        _, attention, draw, seed = path.stem.split("-")
        row: dict[str, Any] = {"attention": attention, "draw": draw, "seed": seed}
        row["score"] = scores_of(kept_parts([path]))[0]
        row["read-out"] = facts["readout_words_attention"] - facts["readout_words_equal"]
        rows.append(row)
    return pd.DataFrame(rows).pivot_table(
        index=["draw", "seed"], columns="attention", values=["score", "read-out"]
    )
