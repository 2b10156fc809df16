"""Finished run directories made of invented numbers, of the shape that real ones have."""

from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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


@pytest.fixture
def no_pictures(monkeypatch):
    """Drawing takes most of a page's time, and many tests ask nothing of the figures."""
    monkeypatch.setattr(build, "pictures", lambda *given, **named: [])


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
    lengths = draw.integers(1, longest + 1, count)
    attention = [draw.dirichlet(np.full(n, 0.25)) for n in lengths]
    predicted = draw.integers(0, classes, count)
    labels = np.where(draw.random(count) < 0.8, predicted, draw.integers(0, classes, count))
    everything = invented_numbers(draw, lengths, attention, predicted, labels, classes, exact=exact)
    everything |= importances(np.arange(count), lengths, steps_of(lengths), seed)
    identity = {
        "run_id": name,
        "experiment": experiment,
        "data": data,
        "model": model,
        "seed": seed,
        "split": "test",
    }
    for probe in probes:
        write_table(
            everything[probe].table({**identity, "probe": probe}),
            directory / f"tables/{probe}.parquet",
        )
    tokens = [[words[i] for i in draw.integers(0, len(words), n)] for n in lengths]
    for number, row in enumerate(tokens):  # a text that repeats another would not count
        row[0] = row[0] if row not in tokens[:number] else f"{row[0]}{number}"
    table = invented_examples(
        tokens, attention, predicted, labels, classes, hierarchical=hierarchical
    )
    if questions:
        table["question"] = [row[:2] for row in tokens]
        table["candidates"] = [[str(one) for one in range(classes)] for _ in tokens]
    (directory / "examples").mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pandas(table, preserve_index=False), directory / "examples/test.parquet"
    )
    (directory / "config.yaml").write_text(
        f"seed: {seed}\ndata: {{name: {data!r}}}\nmodel: {{name: {model!r}}}\n"
    )
    manifest = {"run_id": name, "tables": {probe: {} for probe in probes}}
    manifest |= {"classes": list(names)} if names else {}
    manifest |= {"training": training} if training else {}
    seal(directory, **manifest)
    return directory


def steps_of(lengths):
    """Positions `[examples, longest]`, NaN in the padding."""
    places = np.arange(int(lengths.max()))
    return np.where(places < lengths[:, None], places, np.nan)


def invented_numbers(draw, lengths, attention, predicted, labels, classes, *, exact):
    count = len(lengths)
    ids = np.arange(count)
    whole = np.array([-1])
    largest = np.array([a.max() for a in attention])
    optimum = np.where(lengths == 1, 0, draw.beta(9, 2, count) * LN2)
    found = optimum * draw.beta(8, 2, count)
    is_exact = np.ones(count) if exact else (draw.random(count) < 0.3).astype(float)
    bound = np.where(is_exact == 1, optimum, np.minimum(LN2, optimum + 0.05 * draw.random(count)))
    performance = Rows()
    permutation = Rows()
    adversarial = Rows()
    accuracy = (predicted == labels).mean()
    numbers = {
        "accuracy": accuracy,
        "f1_macro": accuracy - 0.01,
        "roc_auc": 0.9,
        "pr_auc": 0.88,
        "examples": count,
    }
    for metric, value in numbers.items():
        performance.add(metric, whole, np.array([float(value)]))
    performance.add("f1", whole, np.full((1, classes), 0.8), np.arange(classes))
    permutation.add("median_tvd", ids, np.clip(largest * draw.beta(1, 3, count), 0, 1))
    for rows in (permutation, adversarial):
        rows.add("max_attention", ids, largest)
        rows.add("predicted_class", ids, predicted.astype(float))
        rows.add("content_length", ids, lengths.astype(float))
    tables = {
        "found_jsd": found,
        "optimum_jsd": optimum,
        "upper_bound": bound,
        "is_exact": is_exact,
    }
    tables["reached_share"] = np.where(
        optimum > 0, found / np.where(optimum > 0, optimum, 1), np.nan
    )
    for kind in ("found", "optimum"):
        tables[f"{kind}_tvd"] = draw.random(count) * 0.01
        tables[f"max_attention_{kind}"] = np.full(count, 0.9)
        tables[f"top_token_changed_{kind}"] = (lengths > 1).astype(float)
    for metric, values in tables.items():
        adversarial.add(metric, ids, values)
    steps = steps_of(lengths)
    for kind in ("found", "optimum"):
        moved = np.zeros(steps.shape)
        moved[ids, draw.integers(0, lengths)] = 1.0
        if kind == "found":
            moved = moved * 0.7 + 0.3 / lengths[:, None] * ~np.isnan(steps)
        adversarial.add(f"{kind}_attention", ids, moved, steps)
    return {"performance": performance, "permutation": permutation, "adversarial": adversarial}


def invented_examples(tokens, attention, predicted, labels, classes, *, hierarchical):
    count = len(tokens)
    ids = np.arange(count)
    spread = np.full((count, classes), 0.3 / classes)
    spread[ids, predicted] += 0.7
    table = pd.DataFrame(
        {
            "example_id": ids,
            "text": [" ".join(words) for words in tokens],
            "label": labels,
            "prediction": predicted,
            "probability": list(spread),
            "tokens": tokens,
            "attention": attention,
        }
    )
    if hierarchical:  # every token above is a sentence of one to three words
        inside = [[[token] * (1 + at % 3) for at, token in enumerate(row)] for row in tokens]
        table["words"] = inside
        table["word_attention"] = [
            [np.full(len(part), 1 / len(part)) for part in row] for row in inside
        ]
        table["tokens"] = [[" ".join(part) for part in row] for row in inside]
    return table


def importances(ids, lengths, steps, seed):
    """Tables of gradient, leave-one-out, their correlation with attention, and erasure."""
    draw = np.random.default_rng([seed, 99])
    gradient = Rows()
    leave_one_out = Rows()
    correlation = Rows()
    erasure = Rows()
    effects = np.where(np.isnan(steps), 0, draw.random(steps.shape))
    shares = effects / effects.sum(1, keepdims=True)
    for rows, name, values in (
        (gradient, "gradient", shares),
        (leave_one_out, "leave_one_out", effects**4),
    ):
        rows.add(name, ids, values, steps)
        rows.add(f"max_{name}", ids, values.max(1))
    for pair in ("attention_gradient", "attention_leave_one_out", "gradient_leave_one_out"):
        tau = draw.uniform(-0.3, 0.9, len(ids))
        correlation.add(f"tau_{pair}", ids, np.where(lengths > 1, tau, np.nan))
    optimal = draw.integers(1, lengths + 1).astype(float)
    never = draw.random(len(ids)) < 0.2
    erasure.add("never_flips", ids, never.astype(float))
    for order, more in (("optimal", 0), ("attention", 1)):
        count = np.where(never, np.nan, np.minimum(optimal + more, lengths))
        erasure.add(f"removed_count_{order}", ids, count)
        erasure.add(f"removed_fraction_{order}", ids, count / lengths)
    members = np.where(never[:, None], np.nan, steps < optimal[:, None])
    erasure.add("smallest_set", ids, members, steps)
    return {
        "gradient": gradient,
        "leave_one_out": leave_one_out,
        "correlation": correlation,
        "erasure": erasure,
    }
