"""What the tests of attention say of a model whose answer is known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from attnprobe.core.batch import Batch, Outputs
from attnprobe.data.module import TextDataModule
from attnprobe.evidence.claims import Claim, put_to_test
from attnprobe.evidence.deciding_words import SHARE_METRICS
from attnprobe.models.trained import TrainedModel
from attnprobe.probes import agreement, known_answer, skill
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.probes.swaps import Swaps
from research.words.cells import settings_of
from research.words.training import batches, known_of_texts, trained

CLAIMS = {"skill": skill.READING.claims, "agreement": agreement.READING.claims}
"""Probe → the claims that are asked beside swaps."""
SOLVED = 0.9
"""Accuracy that counts."""
LEAST_LEAD = 0.1
"""By how much the state that knows most must be ahead of the mean one, as a share of what it knows,
for states to be right or wrong."""


def facts_of_model(
    rule: str, encoder: str, attention: str, draw: int, texts: int, *, null: bool = False
) -> dict[str, Any]:
    """Train a model of `cells`, and ask it.

    Args:
        rule: of the texts.
        encoder: its name, or the folder of a checkpoint.
        attention: its name.
        draw: of texts, weights and everything random.
        texts: in the test split.
        null: its own weights in random order are asked, too.

    Returns:
        Everything that is known of it; `table`, and `null`, with what the probes say, where it
        solved its task.
    """
    data, model = trained(settings_of(rule, encoder, attention, draw, texts), draw)
    columns = known_of_texts(model, data)
    mass = np.nanmean(columns["mass"])
    chance = np.nanmean(columns["chance"])
    facts: dict[str, Any] = {
        "rule": rule,
        "encoder": Path(encoder).name,
        "attention": attention,
        "draw": draw,
        "accuracy": float(columns["right"].mean()),
        "rightness": float((mass - chance) / (1 - chance)),
    }
    for name in ("follows", "flips", "off_text"):
        is_known = np.isfinite(columns[name]).any()
        facts[name] = float(np.nanmean(columns[name])) if is_known else None
    if facts["accuracy"] >= SOLVED:
        facts["table"] = ask(model, data, draw)
        if null:
            facts["null"] = ask(model, data, draw, permuted=True)
    return facts


def ask(
    model: TrainedModel, data: TextDataModule, seed: int, *, permuted: bool = False
) -> dict[str, Any]:
    """Measure a model with `swaps`, and with the other probes where it is trained from scratch.

    Args:
        model: that solved its task.
        data: whose test texts it is asked about.
        seed: of the probes.
        permuted: asked of the weights in one random order, by `swaps` alone.

    Returns:
        `SHARE_METRICS` by text; `others`: claim → verdict; `state_rightness`: where attention
        stands between the mean state (0) and the one that knows most (1), None where that is not
        ahead.
    """
    probes: list[Probe] = [Swaps()]
    probes[0].prepare(data.splits)
    asks_all = not (permuted or model.reader)
    if asks_all:
        probes += [skill.Skill(), agreement.Agreement(share=1.0), known_answer.KnownAnswer()]
    runner = ProbeRunner(probes, seed)
    draw = np.random.default_rng(seed)
    for number, batch in enumerate(batches(data)):
        outputs = model.predict_step(batch)
        if permuted:
            permute_attention(outputs, batch, draw)
        runner.on_test_batch_end(None, model, {"outputs": outputs}, batch, number)

    swaps = numbers_of_probe(runner, "swaps")
    answers: dict[str, Any] = {name: swaps[name].tolist() for name in SHARE_METRICS}
    answers["others"] = {}
    if asks_all:
        for probe, claims in CLAIMS.items():
            answers["others"] |= verdicts_of_probe(runner, probe, claims)
        states = numbers_of_probe(runner, "known_answer")
        if "state_change_own" in states:
            answers["state_rightness"] = state_rightness(states)
    return answers


def permute_attention(outputs: Outputs, batch: Batch, draw: np.random.Generator) -> None:
    """Put each text's weights in a random order, in place."""
    for row, content in enumerate(batch.content):
        weights = outputs.attention[row, content]
        order = torch.from_numpy(draw.permutation(len(weights)))
        outputs.attention[row, content] = weights[order]


def state_rightness(states: dict[str, np.ndarray]) -> float | None:
    """Where attention stands between the mean state (0) and the one that knows most (1).

    None where that is not ahead.
    """
    attended = np.nanmean(states["state_change_own"])
    null = np.nanmean(states["state_change_null"])
    best = np.nanmean(states["state_change_best"])
    if not best - null > LEAST_LEAD * best:
        return None
    return float((attended - null) / (best - null))


def table_of_probe(runner: ProbeRunner, probe: str) -> pd.DataFrame:
    """What a probe measured, as a long table."""
    identity: dict[str, Any] = dict.fromkeys(("run_id", "experiment", "data", "model", "split"), "")
    return runner.rows[probe].table(identity | {"seed": 0, "probe": probe}).to_pandas()


def numbers_of_probe(runner: ProbeRunner, probe: str) -> dict[str, np.ndarray]:
    """What a probe measured: metric → numbers of all texts."""
    metrics = table_of_probe(runner, probe).groupby("metric", observed=True)
    return {str(metric): rows["value"].to_numpy() for metric, rows in metrics}


def verdicts_of_probe(runner: ProbeRunner, probe: str, claims: Sequence[Claim]) -> dict[str, str]:
    """Claim → what a probe's numbers say of it."""
    findings = put_to_test(claims, table_of_probe(runner, probe))
    return {finding.claim.name: finding.verdict for finding in findings}
