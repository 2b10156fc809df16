from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import stats

from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.words import HIDDEN, IDLE, Words, leaning, word_table
from attnprobe.report.tables import word_tables
from attnprobe.results.numbers import numbers_of
from tests.probes.tables import subject_of, values
from tests.toys import toy_batch, toy_classifier

TEXTS = 60


def tables():
    """Texts of six words: one matters and is not attended to, one is attended to and does not
    matter, others are alike."""
    draw = np.random.default_rng(0)
    rows = []
    examples = []
    for text in range(TEXTS):
        words = ["lurk", "glow", *draw.choice(["a", "the", "of", "it"], 4)]
        examples.append({"example_id": text, "tokens": words})
        for place, word in enumerate(words):
            attention = {"lurk": 0.3, "glow": 3.0}.get(word, 0.7) + draw.normal(0, 0.05)
            effect = {"lurk": 0.4, "glow": 0.01}.get(word, 0.05) + draw.normal(0, 0.01)
            for metric, value in (
                ("relative_attention", attention),
                ("effect", effect),
                ("flips", word == "lurk"),
                ("direction", 1.0),
            ):
                rows.append(
                    {
                        "metric": metric,
                        "example_id": text,
                        "step": float(place),
                        "value": float(value),
                    }
                )
    run = {
        "run_id": "r",
        "experiment": "e",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
        "probe": "words",
    }
    return pd.DataFrame(rows).assign(**run), pd.DataFrame(examples)


def test_what_is_hidden_and_what_is_idle():
    results, examples = tables()
    table = word_table(results, examples).set_index("word")
    assert table.loc["lurk", "kind"] == HIDDEN
    assert table.loc["glow", "kind"] == IDLE
    assert table.loc["lurk", "texts"] == TEXTS
    assert table.loc["lurk", "flips"] == 1
    own = results[results["step"] == 0].pivot_table(
        index="example_id", columns="metric", values="value"
    )
    assert table.loc["lurk", "effect"] == pytest.approx(own["effect"].mean())
    low, high = stats.t.interval(0.95, TEXTS - 1, own["effect"].mean(), stats.sem(own["effect"]))
    assert table.loc["lurk", ["effect low", "effect high"]].tolist() == pytest.approx([low, high])
    labels = [one.get_text() for one in leaning(results, examples).axes[0].get_yticklabels()]
    assert labels == ["lurk (60)", "glow (60)"]


def test_the_table_goes_beside_the_page_one_for_each_run():
    results, examples = tables()
    files = SimpleNamespace(examples=lambda split: pa.Table.from_pandas(examples))
    numbers = numbers_of(results)
    others = numbers_of(results.assign(probe="other"))
    one, two, without = (
        SimpleNamespace(directory=Path(name), files=files, numbers=rows, split="test")
        for name, rows in (("a", numbers), ("b", numbers), ("c", others))
    )
    (alone,) = word_tables([one])
    assert alone.name == "word_table"
    pd.testing.assert_frame_equal(alone.rows, word_table(results, examples))
    assert [table.name for table in word_tables([one, two])] == ["word_table-a", "word_table-b"]
    assert not list(word_tables([without]))


def test_noise_names_nothing():
    results, examples = tables()
    draw = np.random.default_rng(1)
    for metric, mean in (("relative_attention", 1.0), ("effect", 0.1)):
        there = results["metric"] == metric
        results.loc[there, "value"] = draw.normal(mean, 0.03, there.sum())
    assert (word_table(results, examples)["kind"] == "").all()
    assert not leaning(results, examples).axes[0].get_yticklabels()  # and a picture says so


def test_the_probe_by_hand():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([4, 6])
    subject = subject_of(classifier, batch)
    found = values(Words(), subject)
    torch.testing.assert_close(
        found["relative_attention"].sum(-1), torch.tensor([4.0, 6.0], dtype=torch.float64)
    )
    distance = leave_one_out(classifier, batch, subject.outputs).distance
    torch.testing.assert_close(found["effect"], distance, equal_nan=True)
