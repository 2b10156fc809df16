"""The page's first screen: which model, which data, how good against guessing, the verdicts, one sentence, one text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.findings.groups import Group, Run
from attnprobe.plots.example_selection import select_examples
from attnprobe.report.page.browser import is_list, lengths_of
from attnprobe.report.page.sections import listed, number
from attnprobe.report.terminal import data_notes
from attnprobe.results.manifest import SECTION

ENCODERS = {
    "LSTMEncoder": "recurrent model (LSTM)",
    "CNNEncoder": "convolutional model",
    "AverageEncoder": "bag of words (no context)",
    "TransformerEncoder": "transformer, trained from scratch",
    "GRUEncoder": "recurrent model (GRU)",
    "NoEncoder": "bag of words (no context)",
    "HierarchicalEncoder": "hierarchical model (words, then sentences)",
}
"""A class's name → what its models are called in a sentence; other models go by their own name."""
STEPS = 20
"""Shades of a heat map; the style sheet has a class for each."""
DEEP = 0.6
"""Depth from which on a word is written in the light ink, as in the examples' browser."""
WORDS = 25
"""About how many words the text on the first screen has."""
MOST_CLASSES = 8
NO_TESTS = {"performance", "training", "teacher"}


def glance(card: Mapping[str, Any], *, words: bool = True) -> dict[str, Any]:
    """The first screen of one group, by its first run with probes: its card; model, data and quality in words; warnings; what
    was looked at in the data; and one text.

    Args:
        card: of the group (`attnprobe.report.page.sections.cards`).
        words: False shows no text.
    """
    runs = card["group"].runs
    run = next((run for run in runs if set(run.probes) - NO_TESTS), runs[0])
    measured = run.quality
    checks = run.manifest.get(SECTION, {}).get("checks", ())
    good, badge = "", ("", "none")
    if measured is not None:
        good = (
            f"accuracy {measured.accuracy:.3f} [{measured.low:.3f}, {measured.high:.3f}] on {measured.n:,} test texts; "
            f"always guessing the largest class gives {measured.majority:.3f}"
        )
        good, badge = good + (f" (seed {run.seed})" if len(runs) > 1 else ""), measured.badge
    return {
        **card,
        "model": model_in_words(run),
        "data": data_in_words(run),
        "quality": good,
        "badge": badge,
        "warnings": [
            *filter(None, [run.warning]),
            *(str(check["sentence"]) for check in checks if check["warns"]),
        ],
        "checks": checks,
        "shown": sample_text(run) if words else None,
    }


def model_in_words(run: Run) -> str:
    """Such as "recurrent model (LSTM), additive attention"."""
    model = run.manifest.get("training", {}).get("model", {})
    if str(model.get("_target_", "")).endswith(".PretrainedClassifier"):
        layer, heads = model.get("layer", -1), model.get("heads")
        where = "the last layer" if layer == -1 else f"layer {layer}"
        which = "mean of all heads" if heads is None else f"heads {listed(list(map(str, heads)))}"
        return f"{run.model}, a pretrained transformer; attention of {where}, {which}"
    kind = str(model.get("encoder", {}).get("_target_", "")).rpartition(".")[2]
    return f"{ENCODERS[kind]}, {model.get('attention_name', '')} attention" if kind in ENCODERS else run.model


def data_in_words(run: Run) -> str:
    """The data set's name, its file, rows, columns and classes."""
    settings = run.manifest.get("training", {}).get("data", {})
    path, parts = settings.get("path"), []
    rows = sum(int(count.get("kept", 0)) for name, count in run.manifest.get("counts", {}).items() if name != "vectors")
    if rows:
        parts.append(f"{rows:,} texts")
    if path is not None:
        name = Path(str(path.get("train", "") if isinstance(path, Mapping) else path)).name
        parts.append(f"from {name}, column {settings.get('text')}, labels in {settings.get('label')}")
    names = [str(name) for name in run.manifest.get("classes", ())]
    if names:
        more = f" and {len(names) - MOST_CLASSES:,} more" if len(names) > MOST_CLASSES else ""
        parts.append(f"{len(names)} classes: {', '.join(names[:MOST_CLASSES])}{more}")
    return f"{run.data}: {'; '.join(parts)}" if parts else run.data


def sample_text(run: Run) -> dict[str, Any] | None:
    """A text of about `WORDS` words that is classified rightly, the first of the nearest length: `predicted`, `label`,
    `probability`, and its `words`, each with its `weight`, `shade` (0 to `STEPS`, the root of the weight), whether it is
    written in the light ink (`deep`) and whether it has the largest weight (`top`)."""
    if run.split not in run.files.splits():
        return None
    table = run.files.examples(run.split, ["example_id", "label", "prediction", "tokens"])
    if not len(table) or is_list(table["label"].type):
        return None
    distance = np.abs(lengths_of(table["tokens"]).astype(float) - WORDS)
    right = table["label"].to_numpy() == table["prediction"].to_numpy()
    ids = table["example_id"].to_numpy()
    chosen = select_examples(ids, 1, scores={"nearest length": -distance}, evenly=0, prefer=right)
    columns = ["example_id", "label", "prediction", "probability", "tokens", "attention"]
    row = run.files.examples(run.split, columns, chosen).to_pylist()[0]
    if len(row["tokens"]) != len(row["attention"]):
        return None
    named, weights = dict(enumerate(map(str, run.manifest.get("classes", ())))), np.array(row["attention"], float)
    depths = np.sqrt(np.clip(weights, 0, 1))
    return {
        "words": [
            {"text": text, "weight": float(weight), "shade": round(float(depth) * STEPS), "deep": depth > DEEP,
             "top": weight == weights.max()}
            for text, weight, depth in zip(row["tokens"], weights, depths, strict=True)
        ],
        "predicted": named.get(row["prediction"], str(row["prediction"])),
        "label": named.get(row["label"], str(row["label"])),
        "probability": float(row["probability"][row["prediction"]]),
    }  # fmt: skip


# What the page says of the runs themselves: how they were made, of which data, and what to know of their classifiers.


def lead(groups: Sequence[Group]) -> str:
    """What the page is about, in two sentences.

    Args:
        groups: those whose attention was tested; what they were only compared with, such as uniform attention, is not a model
            of which anything is asked.
    """
    where = groups[0].title
    if len(groups) > 1:
        kinds = {"model": {group.model for group in groups}, "data set": {group.data for group in groups}}
        where = " on ".join(f"{len(names)} {kind}{'' if len(names) == 1 else 's'}" for kind, names in kinds.items())
    return (
        f"Published tests of that question, run on {where}. Each asks one thing; the answer is a number, its 95 % interval, "
        f"and a verdict that says no more than the interval does."
    )


def run_row(group: Group, compared: pd.DataFrame) -> dict[str, Any]:
    """One line of the table of runs; `span` is accuracy's interval, or its range over the seeds."""
    ids = [run.run_id for run in group.runs]
    accuracy = compared["metric"].isin(["accuracy", "exact_match"]) & (compared["group"] == "overall")
    own = compared[compared["run_id"].isin(ids) & accuracy]
    values = own["mean"].to_numpy(float)
    span = ""
    if len(own) > 1:
        span = f"({number(values.min())} to {number(values.max())})"
    elif len(own) == 1 and not np.isnan(own["low"].iloc[0]):
        span = f"[{number(own['low'].iloc[0])}, {number(own['high'].iloc[0])}]"
    probes = dict.fromkeys(probe for run in group.runs for probe in run.probes)
    return {
        "data": group.data, "model": group.model, "note": group.note, "seeds": ", ".join(map(str, group.seeds)),
        "examples": int(own["n"].max()) if len(own) else 0,
        "accuracy": float(values.mean()) if len(values) else np.nan,
        "span": span,
        "probes": [probe for probe in probes if probe not in ("performance", "training")],
        "finished": max(str(run.manifest.get("finished", ""))[:10] for run in group.runs),
    }  # fmt: skip


def versions(runs: Sequence[Run]) -> list[str]:
    """Every library with the version that the runs were made with, several where they differ."""
    by_library: dict[str, list[str]] = {}
    for run in runs:
        for library, used in run.manifest.get("versions", {}).items():
            if used not in by_library.setdefault(str(library), []):
                by_library[str(library)].append(str(used))
    return [f"{library} {' or '.join(used)}" for library, used in by_library.items()]


def notes_of_data(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """For each data set what was left out of it or cut; the runs of one data set that differ are told apart."""
    by_data: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for run in runs:
        notes = tuple(data_notes(run.manifest.get("counts", {})))
        by_data.setdefault(run.data, {}).setdefault(notes, []).append(run.model)
    return [
        (data if len(kinds) == 1 else f"{data} ({', '.join(dict.fromkeys(models))})", list(notes))
        for data, kinds in by_data.items()
        for notes, models in kinds.items()
    ]


def data_checks(runs: Sequence[Run]) -> list[tuple[str, list[str], list[dict[str, Any]]]]:
    """For each data set what was guessed while reading and looked at before training, by the first run that says so."""
    sections: dict[str, tuple[str, list[str], list[dict[str, Any]]]] = {}
    for run in runs:
        section = run.manifest.get(SECTION, {})
        if section.get("checks"):
            sections.setdefault(run.data, (run.data, list(section.get("notes", [])), list(section["checks"])))
    return list(sections.values())
