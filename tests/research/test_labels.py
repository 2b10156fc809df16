"""The plain loop that models with labels are compared with, by hand, and the command."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from attnprobe.data.batching import short_enough
from research.labels.__main__ import main
from research.labels.long import ENCODERS, PROBES, Case, classifier, costs_of, growth, split_of
from research.labels.plain import MODELS, PlainModel, numbered, scores


@pytest.mark.parametrize("kind", MODELS)
def test_a_longer_text_in_the_batch_changes_no_label(kind):
    torch.manual_seed(0)
    model = PlainModel(kind, words=20, labels=3).eval()
    short = torch.tensor([4, 9, 2, 7, 5])
    longer = torch.tensor([3, 8, 6, 2, 9, 11, 12, 4])
    with torch.no_grad():
        expected = model(short.unsqueeze(0))[0]
        logits = model(nn.utils.rnn.pad_sequence([short, longer], True))[0]
    assert logits.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_each_label_of_caml_has_an_attention_of_its_own():
    """Label by label and state by state, as Mullenbach et al. 2018 write it."""
    torch.manual_seed(0)
    model = PlainModel("caml", words=20, labels=3).eval()
    ids = torch.tensor([[4, 9, 2, 7]])
    with torch.no_grad():
        vectors = model.embedding(ids).transpose(1, 2)
        hidden = model.convolution(vectors).relu()[0].T
        expected = []
        for label in range(3):
            scores = hidden @ model.query.weight[label]
            attended = torch.zeros(hidden.shape[1])
            for weight, state in zip(scores.softmax(0), hidden, strict=True):
                attended += weight * state
            logit = model.output.weight[label] @ attended + model.output.bias[label]
            expected.append(float(logit))
        logits = model(ids)[0].tolist()
    assert logits == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("metric", "by_hand"),
    [
        ("accuracy", 10 / 12),
        ("micro F1", 2 * 2 / (2 * 2 + 1 + 1)),
        ("macro F1", (2 / 3 + 2 / 3) / 2),  # of the labels that occur
        ("P@5", (1 / 5 + 1 / 5) / 2),
        ("R-precision", (1 + 1 / 2) / 2),
    ],
)
def test_a_metric_is_that_of_two_texts_by_hand(metric, by_hand):
    """A text of the first label, said to be of the first two; one of both, of the second alone."""
    labels = np.array([[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]], bool)
    probability = np.array([[0.9, 0.6, 0.1, 0.2, 0.3, 0.4], [0.1, 0.8, 0.2, 0.3, 0.4, 0.45]])
    assert scores(probability, labels)[metric] == pytest.approx(by_hand)


def test_rare_words_share_a_number_and_labels_are_in_order():
    train = [{"text": "a b", "labels": ["y"]}, {"text": "a c", "labels": ["x", "y"]}]
    texts, words = numbered({"train": train, "test": [{"text": "d a", "labels": []}]})
    assert words == 3  # padding, any other word, a
    assert texts["train"].ids[1].tolist() == [2, 1]
    assert texts["test"].ids[0].tolist() == [1, 2]
    assert texts["train"].labels.tolist() == [[0, 1], [1, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["codes", "FOLDER", "--models", "lamt"], "--models lamt: expected some of caml, laat"),
        (["codes", "FOLDER", "--draws", "0,a"], "--draws 0,a: expected whole numbers, such as 0,1"),
        (["plain", "FOLDER", "FOLDER"], "has no validation.jsonl.gz: expected a folder of Go"),
    ],
    ids=["unknown model", "no draw", "another folder"],
)
def test_a_mistake_is_one_line_and_trains_nothing(tmp_path, arguments, message):
    (tmp_path / "train.jsonl.gz").write_bytes(json.dumps({}).encode())
    command = [str(tmp_path) if word == "FOLDER" else word for word in arguments]
    with pytest.raises(SystemExit, match=message):
        main(command)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("encoder", ENCODERS)
def test_every_cost_of_a_text_is_measured(encoder):
    names = tuple(PROBES)
    costs = costs_of(Case(encoder, words=30, labels=3, probes=names))
    assert set(costs) == {"encoder", "words", "labels asked", "model", *names, "MB", "batches"}
    assert all(costs[name] > 0 for name in ("model", *names))
    assert (costs["words"], costs["labels asked"], costs["batches"]) == (30, 3, 1)


def test_the_rows_of_a_long_text_are_one_text_which_is_encoded_once():
    split = split_of(words=2000, labels=50)
    (rows,) = short_enough(split.words.lengths, 64, text_number=split.text_number)
    batch = split[rows]
    assert len(batch) == 50
    model = classifier("laat").double()
    with torch.no_grad():
        outputs = model(batch.rows(slice(0, 3)))
    # the states are there once, whatever is asked of them
    assert outputs.hidden.stride(0) == 0
    attention = outputs.attention
    assert attention.shape == (3, 2002)
    assert (attention[0] - attention[1]).abs().max() > 1e-6


def test_growth_is_the_power_of_what_doubles():
    sizes = [(100, 10), (200, 10), (400, 10), (100, 20)]
    costs = pd.DataFrame(
        {
            "encoder": "caml",
            "words": words,
            "labels asked": labels,
            "model": 3.0 * words * labels,
            "erasure": words**2 * labels**0.5,
            "MB": 7.0,
        }
        for words, labels in sizes
    )
    powers = growth(costs).set_index(["doubled", "from"])
    assert len(powers) == 3
    assert powers.loc[("words", "100 words, 10 labels"), "model"] == pytest.approx(1)
    assert powers.loc[("words", "200 words, 10 labels"), "erasure"] == pytest.approx(2)
    assert powers.loc[("labels asked", "100 words, 10 labels"), "erasure"] == pytest.approx(0.5)
    assert (powers["MB"] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sizes", "2000"], "--sizes 2000: expected words x labels, such as 2000x50"),
        (["--encoders", "bert"], "--encoders bert: expected some of caml, laat"),
    ],
)
def test_a_size_or_an_encoder_that_is_none_is_one_line(arguments, message):
    with pytest.raises(SystemExit, match=message):
        main(["long", *arguments])
