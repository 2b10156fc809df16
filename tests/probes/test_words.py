from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal
from scipy import stats
from torch.testing import assert_close

from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.words import HIDDEN, IDLE, Words, leaning, word_table
from attnprobe.report.tables import word_tables
from attnprobe.results.numbers import numbers_of
from tests.probes.tables import subject_of, values
from tests.toys import toy_batch, toy_classifier

TEXTS = 60


ATTENTION = {"lurk": 0.3, "glow": 3.0}
EFFECT = {"lurk": 0.4, "glow": 0.01}


def tables():
    """Texts of six words: one matters and is not attended to, one the other way round.

    All other words are alike.
    """
    draw = np.random.default_rng(0)
    rows = []
    examples = []
    for text in range(TEXTS):
        words = ["lurk", "glow", *draw.choice(["a", "the", "of", "it"], 4)]
        examples.append({"example_id": text, "tokens": words})
        for place, word in enumerate(words):
            numbers = {
                "relative_attention": ATTENTION.get(word, 0.7) + draw.normal(0, 0.05),
                "effect": EFFECT.get(word, 0.05) + draw.normal(0, 0.01),
                "flips": float(word == "lurk"),
                "direction": 1.0,
            }
            for metric, value in numbers.items():
                rows.append((metric, text, float(place), value))
    run = {
        "run_id": "r",
        "experiment": "e",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
        "probe": "words",
    }
    results = pd.DataFrame(rows, columns=["metric", "example_id", "step", "value"])
    return results.assign(**run), pd.DataFrame(examples)


def test_what_is_hidden_and_what_is_idle():
    results, examples = tables()
    table = word_table(results, examples).set_index("word")
    assert table.loc["lurk", "kind"] == HIDDEN
    assert table.loc["glow", "kind"] == IDLE

    chart = leaning(results, examples)
    labels = [label.get_text() for label in chart.axes[0].get_yticklabels()]
    assert labels == ["lurk (60)", "glow (60)"]


def test_a_words_effect_is_the_mean_over_its_texts_with_students_interval():
    results, examples = tables()
    is_effect = (results["step"] == 0) & (results["metric"] == "effect")
    effects = results.loc[is_effect, "value"]
    mean = effects.mean()
    low, high = stats.t.interval(0.95, TEXTS - 1, mean, stats.sem(effects))

    lurk = word_table(results, examples).set_index("word").loc["lurk"]

    assert lurk["texts"] == TEXTS
    assert lurk["flips"] == 1
    assert lurk["effect"] == pytest.approx(mean)
    assert lurk["effect low"] == pytest.approx(low)
    assert lurk["effect high"] == pytest.approx(high)


def test_noise_names_nothing():
    results, examples = tables()
    draw = np.random.default_rng(1)
    for metric, mean in (("relative_attention", 1.0), ("effect", 0.1)):
        is_metric = results["metric"] == metric
        results.loc[is_metric, "value"] = draw.normal(mean, 0.03, is_metric.sum())
    assert (word_table(results, examples)["kind"] == "").all()
    assert not leaning(results, examples).axes[0].get_yticklabels()  # and a picture says so


def run_of(directory, examples, results):
    """What the tables beside a page read of a run."""
    return SimpleNamespace(
        directory=Path(directory),
        files=SimpleNamespace(examples=lambda split: pa.Table.from_pandas(examples)),
        numbers=numbers_of(results),
        split="test",
    )


def test_the_table_goes_beside_the_page():
    results, examples = tables()
    (table,) = word_tables([run_of("a", examples, results)])
    assert table.name == "word_table"
    assert_frame_equal(table.rows, word_table(results, examples))


def test_each_of_several_runs_has_a_table():
    results, examples = tables()
    first = run_of("a", examples, results)
    second = run_of("b", examples, results)
    names = [table.name for table in word_tables([first, second])]
    assert names == ["word_table-a", "word_table-b"]


def test_a_run_without_the_probe_has_no_table():
    results, examples = tables()
    without = run_of("c", examples, results.assign(probe="other"))
    assert not list(word_tables([without]))


def test_the_probe_by_hand():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([4, 6])
    subject = subject_of(classifier, batch)
    numbers = values(Words(), subject)
    removals = leave_one_out(classifier, batch, subject.outputs)
    sums = numbers["relative_attention"].sum(-1)
    assert sums.tolist() == pytest.approx([4, 6])
    assert_close(numbers["effect"], removals.distance, equal_nan=True)
