"""Verdicts compared with what is known.

These are tables of docs/results/calibration.md, and a part of the shipped track record.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.evidence.deciding_words import (
    LEAST_SHARE,
    SHARE_CLAIM,
    SHARE_METRICS,
    share_on_deciding_words,
)
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import clopper_pearson
from attnprobe.evidence.verdicts import Verdict
from attnprobe.results.files import write_atomically
from research.calibration.study import ENCODERS
from research.words.cells import LAYERS

FIRST_PART = Path(__file__).parent / "first_part.csv"
"""Counts of the blind batch's first part (draws 100, 101 and 102, of which not every rule), whose
rows are not kept."""
LEAVE_ONE_OUT = "agrees_with_leave_one_out"
RECORDED = {
    ("erasure", SHARE_CLAIM.name): "table",
    ("agreement", LEAVE_ONE_OUT): LEAVE_ONE_OUT,
}
"""Criterion and claim about words → the column of the answers."""
ANSWERS = {
    Verdict.MEETS: "yes",
    Verdict.FAILS: "no",
    Verdict.NO_DIFFERENCE: "no",
    Verdict.NOT_INFORMATIVE: "not asked",
    Verdict.CANNOT_DECIDE: "open",
    Verdict.TOO_RARE: "open",
}
"""A verdict, as the tables of this study say it."""
FOLLOWS = 0.9
"""Share of the texts with their reason changed whose decision follows, from which a model goes by
the reason."""
RIGHT = 0.8
"""Rightness from which an attention is right."""
WRONG = 0.05
"""Rightness up to which it is wrong."""
UNMOVED = 0.05
"""Share of the decisions that may flip with a wrong attention's most attended word."""


def judged(folder: Path) -> pd.DataFrame:
    """A row per model of a folder: what is known of it (`kind`), and the verdicts."""
    return pd.DataFrame(
        [judged_model(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    )


def judged_model(facts: dict[str, Any]) -> dict[str, Any]:
    """One model's row.

    Args:
        facts: see `asking.facts_of_model`.
    """
    names = ("rule", "encoder", "attention", "draw", "accuracy", "rightness")
    row = {name: facts[name] for name in names}
    row["off_text"] = facts.get("off_text")
    row["kind"] = kind_of(facts)
    state = facts.get("table", {}).get("state_rightness")
    if state is not None:
        row["state kind"] = kind_of_rightness(state)
    if "null" in facts:
        row["null"] = answer(placement(facts["null"]))
    if "table" in facts:
        evidence = placement(facts["table"])
        row["table"] = answer(evidence)
        row |= {"placement": evidence.value, "low": evidence.low, "high": evidence.high}
        row |= facts["table"].get("others", {})
    return row


def kind_of(facts: dict[str, Any]) -> str:
    """Whether its attention is right or wrong about words, if it solved its task by the reason."""
    follows = facts["follows"]
    if "table" not in facts or (follows is not None and follows < FOLLOWS):
        return "not solved"
    kind = kind_of_rightness(facts["rightness"])
    flips = facts["flips"]
    if kind == "wrong" and flips is not None and flips > UNMOVED:
        return "between"
    return kind


def kind_of_rightness(rightness: float) -> str:
    """Right, wrong or between."""
    if rightness >= RIGHT:
        return "right"
    return "wrong" if rightness <= WRONG else "between"


def placement(numbers: dict[str, Any]) -> Evidence:
    """Where the weight lies, from the numbers of one model by text."""
    return share_on_deciding_words(*(np.array(numbers[metric])[None] for metric in SHARE_METRICS))


def answer(evidence: Evidence) -> str:
    """Whether the weight is on the words that decide, as the tables say it."""
    if evidence.unasked or evidence.rare:
        return "not asked"
    if evidence.low > LEAST_SHARE:
        return "yes"
    return "no" if evidence.high <= LEAST_SHARE else "open"


def table(models: pd.DataFrame, by: Sequence[str], claim: str = "table") -> pd.DataFrame:
    """How many right and wrong attentions got which answer, and the share of yes.

    Args:
        models: see `judged`.
        by: columns by which models are grouped.
        claim: column of the answers.

    Returns:
        Counts, and the share of yes in per cent with its exact interval; where rules are pooled
        also an interval over them.
    """
    rows = []
    columns = [*by, "kind"]
    decided = models[models["kind"].isin(["right", "wrong"])]
    for key, group in decided.groupby(columns, observed=True):
        answers = group[claim].replace(ANSWERS).fillna("not asked")
        row: dict[str, Any] = dict(zip(columns, key, strict=True))
        row["models"] = len(group)
        for name in ("yes", "no", "open", "not asked"):
            row[name] = int((answers == name).sum())
        share, low, high = clopper_pearson(row["yes"], len(group))
        row["yes, share"] = f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"
        if "rule" not in by:
            low, high = over_rules(group["rule"], answers == "yes")
            row["over rules"] = f"[{low:.0f}, {high:.0f}]"
        rows.append(row)
    return pd.DataFrame(rows)


def over_rules(rules: "pd.Series[str]", yes: "pd.Series[bool]") -> tuple[float, float]:
    """95 % interval of the share of yes in per cent, by a bootstrap over rules.

    Models of one rule are alike.
    """
    counts = yes.groupby(rules).agg(["sum", "size"]).to_numpy()
    draw = np.random.default_rng(0)
    samples = counts[draw.integers(len(counts), size=(10_000, len(counts)))].sum(1)
    low, high = np.quantile(100 * samples[:, 0] / samples[:, 1], [0.025, 0.975])
    return float(low), float(high)


def record(models: pd.DataFrame, path: Path) -> None:
    """Put what verdicts cite into the shipped table in place of what it had.

    Per encoder (of a checkpoint its family) and kind of attention: how many models were asked,
    decided and said yes of; of the swap test with `FIRST_PART`.

    Args:
        models: see `judged`.
        path: of the shipped calibration.parquet.
    """
    shipped = pq.read_table(path)
    rows = shipped.to_pandas()
    decided = models[models["kind"].isin(["right", "wrong"])]
    first_part = pd.read_csv(FIRST_PART).set_index(["encoder", "kind"]).T
    new_rows: list[dict[str, Any]] = []
    for (criterion, claim), column in RECORDED.items():
        if column not in models:
            continue
        is_replaced = (rows["claim"] == claim) & rows["rightness"].isin(["right", "wrong"])
        rows = rows[~is_replaced]
        before = first_part if column == "table" else pd.DataFrame()
        for row in recorded_rows(decided, column, before):
            new_rows.append({"criterion": criterion, "level": "word", "claim": claim} | row)

    added = pd.DataFrame(new_rows, columns=rows.columns).astype(rows.dtypes)
    table = pa.Table.from_pandas(
        pd.concat([rows, added]), schema=shipped.schema, preserve_index=False
    )
    count = len(decided) + int(first_part.to_numpy().sum())
    table = table.replace_schema_metadata(with_origin(shipped.schema.metadata, count))
    write_atomically(path, lambda target: pq.write_table(table, target))


def with_origin(metadata: Mapping[bytes, bytes], count: int) -> dict[bytes, bytes]:
    """The shipped table's metadata, with where its rows about words are from.

    Args:
        metadata: that the table had.
        count: models that the rows count.
    """
    facts = json.loads(metadata[b"attnprobe"])
    facts["words"] = f"python -m research.words: {count} models"
    return {**metadata, b"attnprobe": json.dumps(facts).encode()}


def recorded_rows(decided: pd.DataFrame, column: str, before: pd.DataFrame) -> list[dict[str, Any]]:
    """Counts per encoder and kind of attention.

    Args:
        decided: models whose attention is right or wrong.
        column: of the answers.
        before: counts that are added, by answer, a column per encoder and kind.
    """
    rows = []
    families = decided["encoder"].map(family)
    for (encoder, kind), answers in decided.groupby([families, "kind"])[column]:
        if answers.isna().all():  # this probe was not asked
            continue
        counts = answers.replace(ANSWERS).fillna("not asked").value_counts()
        if (encoder, kind) in before:
            counts = counts.add(before[encoder, kind], fill_value=0)
        yes = int(counts.get("yes", 0))
        row = {"encoder": encoder, "rightness": kind}
        row |= {"models": yes + int(counts.get("no", 0)), "meets": yes}
        rows.append(row | {"asked": int(counts.sum())})
    return rows


def family(encoder: str) -> str:
    """Of which kind an encoder is in the track record; checkpoints are bert."""
    if encoder in ENCODERS:
        return encoder
    return "transformer" if encoder in LAYERS else "bert"
