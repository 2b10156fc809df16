"""Generated damages of a study's runs, sealed again by whoever made them. Every answer is a reading or one line."""

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib import pyplot as plt

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.findings.studies.base import read_study
from attnprobe.report.publish import write_study
from attnprobe.report.tables import with_intervals
from attnprobe.results.files import read_sealed, write_sealed, write_table
from attnprobe.results.table import Rows
from tests.report.studies.invented import invented_study
from tests.runs import seal, seal_again

TEXTS = 12
ODD: tuple[Any, ...] = (np.nan, np.inf, -np.inf, 1e308, -1.0, 0.0, 0.5, 2.0)
VALUES: tuple[Any, ...] = (None, 3, "", "x", [], ["a"], ["a", 3], {}, {"a": {}}, True, -1, 1e400, "\x1b[31m", "a\nb")
KNOWN = ("correct", "correct_contradicted", "correct_without", "chance", "mass_on_rationale", "precision_on_rationale",
         "auprc_on_rationale")  # fmt: skip
PLAUSIBLE = ("auprc_chance", "rationale_share", "f1_rationale_attention", "f1_rationale_random",
             "auprc_rationale_attention", "auprc_rationale_random")  # fmt: skip


def templates(place: Path) -> dict[str, Path]:
    """A sound study of each kind: its name → the folder of its runs and its own directory `study`."""
    made = {}
    for name in ("wiegreffe", "audit", "sanity"):
        made[name] = place / name
        adversaries = {0.0: (0.04, 0.1), 0.1: (0.3, 0.65)}
        guides = {by: [0.7] for by in ("uniform", "trained", "base", "adversary")}
        invented_study(made[name], [0.8, 0.7], [0.6], guides, adversaries, of=name, texts=TEXTS)
    for name in ("methods", "calibration"):
        made[name] = place / name
        members = [known_run(made[name] / f"run{seed}", seed) for seed in range(2)]
        content = {"study": name, "data": "token", "model": "average", "members": members, "settings": {}}
        write_sealed(content, made[name] / "study" / "study.json")
    return made


def known_run(directory: Path, seed: int) -> dict[str, Any]:
    """A run on data whose reason is known, as a study lists it."""
    identity = {
        "run_id": directory.name, "experiment": "methods", "data": "token", "model": "average_learned", "seed": seed,
        "split": "test",
    }  # fmt: skip
    drawn = np.random.default_rng(seed)
    for probe, metrics in {"known_answer": KNOWN, "plausibility": PLAUSIBLE}.items():
        rows = Rows()
        for metric in metrics:
            values = np.ones(TEXTS) if metric.startswith("correct") else drawn.random(TEXTS)
            rows.add(metric, np.arange(TEXTS), values)
        write_table(rows.table(identity | {"probe": probe}), directory / f"tables/{probe}.parquet")
    said = {name: {"title": name, "colour": "#123456", "seconds": 0.5} for name in ("attention", "random")}
    tables = {"known_answer": {"settings": None}, "plausibility": {"settings": None, "importances": said}}
    own = {name: identity[name] for name in ("run_id", "experiment", "data", "model", "seed")}
    seal(directory, **own, tables=tables, classes=["no", "yes"])
    return {
        "role": "learned",
        "seed": seed,
        "parameter": None,
        "run_id": directory.name,
        "directory": f"../{directory.name}",
    }


def failure(number: int, sound: dict[str, Path], folder: Path, seed: int = 0) -> str | None:
    """What the study with the damage of this number ends in, where that is neither a reading nor one line."""
    source = random.Random(f"{seed}-{number}")
    name = source.choice(list(sound))
    place = folder / f"case{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(sound[name], place)
    runs = sorted(path.parent for path in place.glob("*/manifest.json"))
    done = [name, *(damage(source.choice(runs), source) for _ in range(source.choice((1, 1, 2))))]
    try:
        reading = read_study(place / "study")
        write_study(reading)
        for table in reading.tables.values():
            with_intervals(table)
    except UserError as error:
        line = str(error)
        return None if line.strip() and visible(line).isprintable() and "\n" not in line else f"{done}: {line!r}"
    except Exception as error:
        return f"{done}: {type(error).__name__}: {str(error)[:200]}"
    finally:
        plt.close("all")
    return None


def damage(run: Path, source: random.Random) -> str:
    """Change one thing in a run and seal it; returns what."""
    kind = source.choice(("table", "table", "table", "examples", "manifest"))
    if kind == "manifest":
        return f"{run.name}: {damaged_manifest(run, source)}"
    paths = sorted(run.glob("tables/*.parquet" if kind == "table" else "examples/*.parquet"))
    if not paths:
        return f"{run.name}: nothing"
    path = source.choice(paths)
    table = pq.read_table(path)
    frame, said = (damaged_rows if kind == "table" else damaged_examples)(table.to_pandas(), source)
    if kind == "table":
        write_table(pa.Table.from_pandas(frame, schema=table.schema, preserve_index=False), path)
    else:
        frame.to_parquet(path)
    with suppress(UserError):  # an earlier damage, of the manifest
        seal_again(run)
    return f"{run.name}/{path.stem}: {said}"


def damaged_rows(frame: pd.DataFrame, source: random.Random) -> tuple[pd.DataFrame, str]:
    """A long table with something else in it, and in words what."""
    metric = source.choice(sorted(map(str, frame["metric"].unique()))) if len(frame) else ""
    own = frame["metric"] == metric
    some = own & (np.arange(len(frame)) % source.choice((1, 2, 5)) == 0)
    kind = source.choice(
        ("gone", "empty", "twice", "value", "ids", "negative", "step", "renamed", "identity", "infinite")
    )
    if kind == "gone":
        return frame[~some], f"{metric} gone"
    if kind == "empty":
        return frame[:0], "no row"
    if kind == "twice":
        return pd.concat([frame, frame[some]], ignore_index=True), f"{metric} twice"
    if kind == "value":
        value = source.choice(ODD)
        return frame.assign(value=frame["value"].mask(some, value)), f"{metric} {value}"
    if kind == "infinite":
        return frame.assign(value=source.choice(ODD)), "all values odd"
    if kind == "ids":
        return frame.assign(example_id=frame["example_id"].mask(some, frame["example_id"] + 7)), f"{metric} of others"
    if kind == "negative":
        return frame.assign(example_id=-1), "of no example"
    if kind == "step":
        return frame.assign(step=frame["step"].mask(some, source.choice(ODD))), f"{metric} with a step"
    if kind == "renamed":
        return frame.assign(metric=frame["metric"].astype(str).mask(some, "other")), f"{metric} renamed"
    column = source.choice(("run_id", "data", "model", "split", "probe", "experiment"))
    return frame.assign(**{column: frame[column].astype(str).mask(some, "other")}), f"{column} other"


def damaged_examples(frame: pd.DataFrame, source: random.Random) -> tuple[pd.DataFrame, str]:
    """The examples with something else in them, and in words what."""
    column = source.choice(list(frame))
    kind = source.choice(("gone", "fewer", "twice", "number", "list", "text", "shorter", "none"))
    if kind == "gone":
        return frame.drop(columns=column), f"no {column}"
    if kind == "fewer":
        return frame[: source.choice((0, 1, TEXTS // 2))], "fewer"
    if kind == "twice":
        return pd.concat([frame, frame], ignore_index=True), "twice"
    if kind == "shorter" and column == "attention":
        return frame.assign(attention=[row[: source.randint(0, 3)] for row in frame["attention"]]), "shorter attention"
    cell = {"number": source.choice(ODD), "list": [1, 0], "text": "x", "none": None}.get(kind, 1)
    return frame.assign(**{column: [cell] * len(frame)}), f"{column} is {cell}"


def damaged_manifest(run: Path, source: random.Random) -> str:
    """Change one entry of a run's manifest."""
    content = read_sealed(run / "manifest.json")
    place = content
    if source.random() < 0.4:
        place = content["tables"]
        if place and source.random() < 0.5:
            place = place[source.choice(list(place))]
    if not place:
        return "nothing"
    key, value = source.choice(list(place)), source.choice(VALUES)
    if source.random() < 0.5:
        del place[key]
        said = f"no {key}"
    else:
        place[key] = value
        said = f"{key}={value!r}"
    write_sealed(content, run / "manifest.json")
    return f"manifest: {said}"
