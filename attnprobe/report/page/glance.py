"""The page's first screen: which model, which data, how good against guessing, the verdicts, one sentence, one text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnprobe.report.page.browser.texts import is_list, lengths_of
from attnprobe.report.page.runs import Group, Run
from attnprobe.report.page.verdicts import Card, listed
from attnprobe.report.quality import Quality, quality_of
from attnprobe.report.states import State, states
from attnprobe.results.directory import RunDirectory
from attnprobe.results.statements import SECTION

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


@dataclass(frozen=True)
class Word:
    """A word of the shown text. `shade`: 0 to `STEPS`, the root of its weight; `top`: it has the largest one."""

    text: str
    weight: float
    shade: int
    deep: bool
    top: bool


@dataclass(frozen=True)
class Shown:
    """One text with its heat map."""

    words: tuple[Word, ...]
    predicted: str
    label: str
    probability: float


@dataclass(frozen=True)
class Glance:
    """All of the first screen about one group of runs.

    Attributes:
        group: whose.
        model, data: in words.
        quality: a sentence on how good it is against guessing; empty where no largest class can be named.
        badge: the same in two or three words, and the kind of badge (`Quality.badge`); empty where that is not known.
        states: one per criterion.
        sentence: what may be quoted.
        warnings: of the data and the classifier.
        checks: what was looked at in the data before training, as the manifest has it.
        shown: a text, or None where the page shows none.
    """

    group: Group
    model: str
    data: str
    quality: str
    badge: tuple[str, str]
    states: tuple[State, ...]
    sentence: str
    warnings: tuple[str, ...]
    checks: tuple[Mapping[str, Any], ...]
    shown: Shown | None


def glances(cards: Sequence[Card], *, words: bool = True) -> list[Glance]:
    """One for each card.

    Args:
        cards: of the groups whose attention was tested.
        words: False shows no text.
    """
    return [glance(card, words=words) for card in cards]


def glance(card: Card, *, words: bool) -> Glance:
    """The first screen of one group, by its first run with probes."""
    run = next((run for run in card.group.runs if set(run.probes) - NO_TESTS), card.group.runs[0])
    measured, several = quality_of(run.directory, run.split), len(card.group.runs) > 1
    section = run.manifest.get(SECTION, {})
    checks = tuple(section.get("checks", ()))
    warned = [str(check["sentence"]) for check in checks if check["warns"]]
    return Glance(
        group=card.group,
        model=model_in_words(run),
        data=data_in_words(run),
        quality="" if measured is None else quality_in_words(measured) + (f" (seed {run.seed})" if several else ""),
        badge=("", "none") if measured is None else measured.badge,
        states=states(card.lines),
        sentence=card.sentence,
        warnings=(*([measured.warning] if measured is not None and measured.warning else []), *warned),
        checks=checks,
        shown=shown(run) if words else None,
    )


def model_in_words(run: Run) -> str:
    """Such as "recurrent model (LSTM), additive attention"."""
    settings = run.manifest.get("training", {})
    model = settings.get("model", {})
    if str(model.get("_target_", "")).endswith(".PretrainedClassifier"):
        return f"{run.model}, a pretrained transformer; {site_in_words(model)}"
    kind = str(model.get("encoder", {}).get("_target_", "")).rpartition(".")[2]
    if kind not in ENCODERS:
        return run.model
    return f"{ENCODERS[kind]}, {model.get('attention_name', '')} attention"


def site_in_words(model: Mapping[str, Any]) -> str:
    """Which attention of a transformer is meant.

    >>> site_in_words({"layer": -1, "heads": [0, 3]})
    'attention of the last layer, heads 0 and 3'
    """
    layer, heads = model.get("layer", -1), model.get("heads")
    where = "the last layer" if layer == -1 else f"layer {layer}"
    return f"attention of {where}, {'mean of all heads' if heads is None else f'heads {listed(list(map(str, heads)))}'}"


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


def quality_in_words(measured: Quality) -> str:
    """Accuracy compared with the largest class."""
    accuracy = (
        f"accuracy {measured.accuracy:.3f} [{measured.low:.3f}, {measured.high:.3f}] on {measured.n:,} test texts"
    )
    return f"{accuracy}; always guessing the largest class gives {measured.majority:.3f}"


def shown(run: Run) -> Shown | None:
    """A text of about `WORDS` words that is classified rightly: the first of the nearest length."""
    directory = RunDirectory(run.directory)
    columns = ["example_id", "label", "prediction", "probability", "tokens", "attention"]
    if run.split not in directory.splits():
        return None
    if is_list(directory.example_columns(run.split).field("label").type):
        return None
    best: tuple[bool, int, int] | None = None
    for piece in directory.example_pieces(run.split, ["label", "prediction", "tokens"]):
        if not len(piece):
            continue
        distance = np.abs(lengths_of(piece["tokens"]).astype(np.int64) - WORDS)
        wrong = piece["label"].to_numpy() != piece["prediction"].to_numpy()
        first = int(np.lexsort((distance, wrong))[0])  # stable: the first of equals
        own = (bool(wrong[first]), int(distance[first]), int(piece["example_id"][first].as_py()))
        best = own if best is None else min(best, own)
    if best is None:
        return None
    row = directory.examples(run.split, columns, [best[2]]).to_pylist()[0]
    if len(row["tokens"]) != len(row["attention"]):
        return None
    classes = [str(name) for name in run.manifest.get("classes", ())]
    named = dict(enumerate(classes))
    weights = np.array(row["attention"], float)
    return Shown(
        words=tuple(
            word(text, weight, weight == weights.max()) for text, weight in zip(row["tokens"], weights, strict=True)
        ),
        predicted=named.get(row["prediction"], str(row["prediction"])),
        label=named.get(row["label"], str(row["label"])),
        probability=float(row["probability"][row["prediction"]]),
    )


def word(text: str, weight: float, top: bool) -> Word:
    """A word with its shade."""
    depth = float(np.sqrt(min(1.0, max(0.0, weight))))
    return Word(text, float(weight), round(depth * STEPS), depth > DEEP, bool(top))
