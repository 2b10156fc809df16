from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

import attnprobe
from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import TextRules
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import TrainedRun
from attnprobe.runs.run import run
from tests.small_runs import small_run
from tests.toys import VOCABULARY, toy_classifier


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return run(
        small_run(tmp_path_factory.mktemp("runs"), probes="[permutation,gradient,leave_one_out]")
    )


def toy_run(**settings):
    """An untrained classifier with a vocabulary of letters, as `load_run` would give it."""
    vocabulary = Vocabulary("abcdefghijklmnopqrstuvwxyz")
    assert len(vocabulary) == VOCABULARY
    classifier = toy_classifier(spread=3.0, **settings)
    classes = ["<u>", "v", "w"][: classifier.classes]
    rules = TextRules(tokenizer="whitespace")
    pipeline = TextPipeline(
        rules, vocabulary, classes, task=classifier.task, question=settings.get("question", False)
    )
    return TrainedRun(classifier, pipeline, {}, Path())


def assert_same_numbers(lists, expected):
    assert_allclose(np.concatenate([*lists]), np.concatenate([*expected]), atol=1e-5)


def test_explain_says_of_a_test_text_what_the_run_said(directory):
    loaded = attnprobe.load_run(directory)
    examples = read_examples(directory)
    explained = loaded.explain([" ".join(tokens) for tokens in examples["tokens"]])
    predictions = [loaded.classes[number] for number in examples["prediction"]]
    assert list(explained["prediction"]) == predictions
    for tokens, expected in zip(explained["tokens"], examples["tokens"], strict=True):
        assert list(tokens) == list(expected)
    probability = [list(shares.values()) for shares in explained["probability"]]
    assert_same_numbers(explained["attention"], examples["attention"])
    assert_same_numbers(probability, examples["probability"])
    for probe in ("gradient", "leave_one_out"):
        table = read_results(directory, probe)
        rows = table[table["metric"] == probe].sort_values(["example_id", "step"])
        assert_allclose(np.concatenate([*explained[probe]]), rows["value"], atol=1e-5)


def test_the_flipping_set_flips():
    loaded = toy_run(encoder="average", classes=3, seed=1)
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(list("abcdefgh"), 5)) for _ in range(40)]
    readout = loaded.classifier.readout(*loaded.outputs(texts))
    position_logits = readout.position_logits.numpy()[:, 1:6]  # without the markers
    flipped = 0
    for logits, row in zip(position_logits, loaded.explain(texts).to_dict("records"), strict=True):
        remaining = np.array(row["attention"]) * ~np.array(row["flipping_set"])
        if isinstance(row["flips_to"], str):
            flipped += 1
            decision = loaded.classes[(remaining @ logits).argmax()]
            assert decision == row["flips_to"] != row["prediction"]
        else:
            assert not any(row["flipping_set"])
    assert 0 < flipped < 40


def test_several_labels_have_no_flipping_set():
    explained = toy_run(classes=3, task=Task.MULTI_LABEL).explain(["a b c", "d e"])
    assert "flipping_set" not in explained
    for row in explained.to_dict("records"):
        likely = [name for name, share in row["probability"].items() if share > 0.5]
        assert row["prediction"] == likely
        assert len(row["gradient"]) == len(row["leave_one_out"]) == len(row["tokens"])


def test_questions_have_no_flipping_set():
    explained = toy_run(classes=3, question=True).explain(
        ["a b c", "a b"], ["d <i>", "e"], [["v"], ["<u>", "w"]]
    )
    assert list(explained["question"]) == ["d <i>", "e"]
    assert explained["prediction"][0] == "v"
    assert explained["probability"][1]["v"] == 0
    assert "flipping_set" not in explained
    assert "d &lt;i&gt; → v (p = 1.000)" in explained._repr_html_()


def test_a_hierarchical_run_explains_sentences_and_their_words(tmp_path):
    directory = run(small_run(tmp_path, "model=hanrnn", "data.sentences=rule", probes="[]"))
    loaded = attnprobe.load_run(directory)
    explained = loaded.explain(["a fine film . the plot is dull .", "fine ."])
    row = explained.iloc[0]
    assert row["tokens"] == ["a fine film .", "the plot is dull ."]
    assert [len(weights) for weights in row["word_attention"]] == [4, 5]
    assert len(row["flipping_set"]) == len(row["attention"]) == 2
    assert len(row["gradient"]) == len(row["leave_one_out"]) == 2
    assert explained._repr_html_().count("within sentences</span>") == 2
    (occlusion,) = loaded.explain(["a fine film . dull ."], importance=["occlusion"])["occlusion"]
    assert len(occlusion) == 2


def test_unknown_words_and_markup():
    explained = toy_run().explain(["<script>x</script>", "a <b>"])
    assert explained["tokens"][0] == ["<script>x</script>"]
    assert explained["attention"][0] == [1]
    assert np.isnan(explained["leave_one_out"][0]).all()
    html = explained._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;x&lt;/script&gt;" in html


def test_explain_leaves_the_classifier_as_it_was():
    loaded = toy_run()
    before = deepcopy(loaded.classifier.state_dict())
    first = loaded.explain(["a b c d"])
    second = loaded.explain(["a b c d"])
    assert_frame_equal(first, second)
    for name, weight in loaded.classifier.state_dict().items():
        assert (before[name] == weight).all(), name
    assert all(parameter.grad is None for parameter in loaded.classifier.parameters())
    assert not loaded.classifier.training


@pytest.mark.parametrize(
    ("texts", "importance", "message"),
    [
        ([], None, r"texts=\[\]: expected a list of one or more"),
        (["a film"], "gradient", r"expected a list of any of .*attention, .*gradient"),
        (["a film"], ["attenton"], r"expected a list of any of .*attention, .*gradient"),
        ("a film", None, "expected a list"),
        (["a film", " "], None, "text 1 "),
    ],
)
def test_explain_wants_texts_and_known_importances(texts, importance, message):
    with pytest.raises(UserError, match=message):
        toy_run().explain(texts, importance=importance)


def test_load_run_wants_a_finished_run(tmp_path):
    with pytest.raises(UserError, match=r"no manifest\.json"):
        attnprobe.load_run(tmp_path)
