"""Finished run directories made of invented numbers, of the shape that real ones have."""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.plots import style
from attnprobe.plots.style import rendered
from attnprobe.report.page import build
from attnprobe.results.files import write_table
from attnprobe.results.table import Rows
from tests.small_runs import seal

LN2 = float(np.log(2))
WORDS = [
    "the",
    "a",
    "film",
    "not",
    "very",
    "good",
    "dull",
    "moving",
    "$5",
    "[red]bold[/red]",
    "_under_",
    "映画",
    "кино",
]


@pytest.fixture
def make_run(tmp_path):
    return partial(invented_run, tmp_path)


@contextmanager
def without_pictures():
    """Within it pages have no figures: drawing takes most of their time, and many tests ask nothing
    of them."""
    with pytest.MonkeyPatch.context() as patch:
        for drawing in ("pictures", "write_figures_of_texts"):
            patch.setattr(build, drawing, lambda *arguments, **options: [])
        yield


@pytest.fixture
def no_pictures():
    with without_pictures():
        yield


@pytest.fixture
def no_pdf(monkeypatch):
    """A figure's PDF is the same drawing as its PNG, and takes longer to write."""

    def rendered_but_pdf(figure, kind):
        return b"%PDF-" if kind == "pdf" else rendered(figure, kind)

    monkeypatch.setattr(style, "rendered", rendered_but_pdf)


def invented_run(
    base,
    name="run",
    *,
    data="sst",
    model="lstm_additive",
    seed=0,
    count=60,
    classes=2,
    exact=True,
    longest=30,
    experiment="jain_adversarial",
    probes=("performance", "permutation", "adversarial"),
    words=WORDS,
    names=(),
    hierarchical=False,
    questions=False,
    training=None,
):
    directory = base / name
    draw = np.random.default_rng([seed, count, classes])
    predictions = invented_predictions(draw, count, classes, longest)
    tables = invented_numbers(draw, predictions, exact=exact)
    tables |= importances(predictions.lengths, seed)
    identity = {
        "run_id": name,
        "experiment": experiment,
        "data": data,
        "model": model,
        "seed": seed,
        "split": "test",
    }
    for probe in probes:
        table = tables[probe].table({**identity, "probe": probe})
        write_table(table, directory / f"tables/{probe}.parquet")

    tokens = invented_tokens(draw, predictions.lengths, words)
    examples = invented_examples(tokens, predictions, hierarchical=hierarchical)
    if questions:
        candidates = [str(label) for label in range(classes)]
        examples["question"] = [row[:2] for row in tokens]
        examples["candidates"] = [candidates for _ in tokens]
    (directory / "examples").mkdir(parents=True)
    table = pa.Table.from_pandas(examples, preserve_index=False)
    pq.write_table(table, directory / "examples/test.parquet")

    (directory / "config.yaml").write_text(
        f"seed: {seed}\ndata: {{name: {data!r}}}\nmodel: {{name: {model!r}}}\n", encoding="utf-8"
    )
    manifest = {"run_id": name, "tables": {probe: {} for probe in probes}}
    if names:
        manifest["classes"] = list(names)
    if training:
        manifest["training"] = training
    seal(directory, **manifest)
    return directory


@dataclass(frozen=True)
class Predictions:
    """What an invented model makes of invented texts.

    Attributes:
        lengths: words of each text.
        attention: a row of weights per text.
        predicted: the model's class of each text.
        labels: the right class of each text, in most of them the predicted one.
        classes: how many classes exist.
    """

    lengths: np.ndarray
    attention: list[np.ndarray]
    predicted: np.ndarray
    labels: np.ndarray
    classes: int

    @property
    def ids(self) -> np.ndarray:
        return np.arange(len(self.lengths))


def invented_predictions(draw, count, classes, longest):
    lengths = draw.integers(1, longest + 1, count)
    attention = [draw.dirichlet(np.full(length, 0.25)) for length in lengths]
    predicted = draw.integers(0, classes, count)
    is_right = draw.random(count) < 0.8
    other_labels = draw.integers(0, classes, count)
    labels = np.where(is_right, predicted, other_labels)
    return Predictions(lengths, attention, predicted, labels, classes)


def invented_tokens(draw, lengths, words):
    tokens = []
    for number, length in enumerate(lengths):
        drawn = draw.integers(0, len(words), length)
        row = [words[word] for word in drawn]
        if row in tokens:  # a text that repeats another would not count
            row[0] = f"{row[0]}{number}"
        tokens.append(row)
    return tokens


def steps_of(lengths):
    """Positions `[examples, longest]`, NaN in the padding."""
    positions = np.arange(int(lengths.max()))
    return np.where(positions < lengths[:, None], positions, np.nan)


def invented_numbers(draw, predictions, *, exact):
    """Tables of performance, permutation and adversarial: what they draw, they draw in turn."""
    bounds = invented_bounds(draw, predictions.lengths, exact=exact)
    permutation = permutation_rows(draw, predictions)
    return {
        "performance": performance_rows(predictions),
        "permutation": permutation,
        "adversarial": adversarial_rows(draw, predictions, bounds),
    }


def invented_bounds(draw, lengths, *, exact):
    """How far each attention could be moved: what a search found, the optimum, an upper bound."""
    count = len(lengths)
    optimum = np.where(lengths == 1, 0, draw.beta(9, 2, count) * LN2)
    search = optimum * draw.beta(8, 2, count)
    is_exact = np.ones(count) if exact else (draw.random(count) < 0.3).astype(float)
    loose = np.minimum(LN2, optimum + 0.05 * draw.random(count))
    reached_share = search / np.where(optimum > 0, optimum, np.nan)
    return {
        "found_jsd": search,
        "optimum_jsd": optimum,
        "upper_bound": np.where(is_exact == 1, optimum, loose),
        "is_exact": is_exact,
        "reached_share": reached_share,
    }


def performance_rows(predictions):
    accuracy = (predictions.predicted == predictions.labels).mean()
    numbers = {
        "accuracy": accuracy,
        "f1_macro": accuracy - 0.01,
        "roc_auc": 0.9,
        "pr_auc": 0.88,
        "examples": len(predictions.labels),
    }
    rows = Rows()
    corpus = np.array([-1])
    for metric, value in numbers.items():
        rows.add(metric, corpus, np.array([float(value)]))
    classes = predictions.classes
    rows.add("f1", corpus, np.full((1, classes), 0.8), np.arange(classes))
    return rows


def permutation_rows(draw, predictions):
    largest = np.array([weights.max() for weights in predictions.attention])
    median_tvd = np.clip(largest * draw.beta(1, 3, len(largest)), 0, 1)
    rows = Rows()
    rows.add("median_tvd", predictions.ids, median_tvd)
    add_facts(rows, predictions)
    return rows


def add_facts(rows, predictions):
    """What several probes note of every text."""
    largest = np.array([weights.max() for weights in predictions.attention])
    rows.add("max_attention", predictions.ids, largest)
    rows.add("predicted_class", predictions.ids, predictions.predicted.astype(float))
    rows.add("content_length", predictions.ids, predictions.lengths.astype(float))


def adversarial_rows(draw, predictions, bounds):
    lengths = predictions.lengths
    count = len(lengths)
    tables = dict(bounds)
    for kind in ("found", "optimum"):
        tables[f"{kind}_tvd"] = draw.random(count) * 0.01
        tables[f"max_attention_{kind}"] = np.full(count, 0.9)
        tables[f"top_token_changed_{kind}"] = (lengths > 1).astype(float)
    rows = Rows()
    add_facts(rows, predictions)
    for metric, values in tables.items():
        rows.add(metric, predictions.ids, values)

    steps = steps_of(lengths)
    for kind in ("found", "optimum"):
        moved = np.zeros(steps.shape)
        moved[predictions.ids, draw.integers(0, lengths)] = 1.0
        if kind == "found":
            is_word = ~np.isnan(steps)
            even = is_word / lengths[:, None]
            moved = 0.7 * moved + 0.3 * even
        rows.add(f"{kind}_attention", predictions.ids, moved, steps)
    return rows


def invented_examples(tokens, predictions, *, hierarchical):
    ids = predictions.ids
    classes = predictions.classes
    probability = np.full((len(ids), classes), 0.3 / classes)
    probability[ids, predictions.predicted] += 0.7
    table = pd.DataFrame(
        {
            "example_id": ids,
            "text": [" ".join(words) for words in tokens],
            "label": predictions.labels,
            "prediction": predictions.predicted,
            "probability": list(probability),
            "tokens": tokens,
            "attention": predictions.attention,
        }
    )
    if hierarchical:
        sentences = [sentences_of(row) for row in tokens]
        table["words"] = sentences
        table["word_attention"] = [[even_weights(words) for words in row] for row in sentences]
        table["tokens"] = [[" ".join(words) for words in row] for row in sentences]
    return table


def sentences_of(tokens):
    """Every token as a sentence that repeats it one to three times."""
    return [[token] * (1 + number % 3) for number, token in enumerate(tokens)]


def even_weights(words):
    return np.full(len(words), 1 / len(words))


def importances(lengths, seed):
    """Tables of gradient, leave-one-out, their correlation with attention, and erasure."""
    draw = np.random.default_rng([seed, 99])
    steps = steps_of(lengths)
    effects = np.where(np.isnan(steps), 0, draw.random(steps.shape))
    shares = effects / effects.sum(1, keepdims=True)
    return {
        "gradient": importance_rows("gradient", shares, steps),
        "leave_one_out": importance_rows("leave_one_out", effects**4, steps),
        "correlation": correlation_rows(draw, lengths),
        "erasure": erasure_rows(draw, lengths),
    }


def importance_rows(name, values, steps):
    rows = Rows()
    ids = np.arange(len(values))
    rows.add(name, ids, values, steps)
    rows.add(f"max_{name}", ids, values.max(1))
    return rows


def correlation_rows(draw, lengths):
    rows = Rows()
    ids = np.arange(len(lengths))
    for pair in ("attention_gradient", "attention_leave_one_out", "gradient_leave_one_out"):
        tau = draw.uniform(-0.3, 0.9, len(ids))
        tau[lengths == 1] = np.nan
        rows.add(f"tau_{pair}", ids, tau)
    return rows


def erasure_rows(draw, lengths):
    rows = Rows()
    ids = np.arange(len(lengths))
    optimal = draw.integers(1, lengths + 1).astype(float)
    never = draw.random(len(ids)) < 0.2
    rows.add("never_flips", ids, never.astype(float))
    for order, more in (("optimal", 0), ("attention", 1)):
        count = np.where(never, np.nan, np.minimum(optimal + more, lengths))
        rows.add(f"removed_count_{order}", ids, count)
        rows.add(f"removed_fraction_{order}", ids, count / lengths)
    steps = steps_of(lengths)
    members = (steps < optimal[:, None]).astype(float)
    members[never] = np.nan
    rows.add("smallest_set", ids, members, steps)
    return rows
