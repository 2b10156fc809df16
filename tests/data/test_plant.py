from collections import Counter

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from attnprobe.core.errors import UserError
from attnprobe.data.plant import CONTEXT, KINDS, WORDS, planted_words
from attnprobe.data.testbed import generate_reviews
from tests.data.toys import ready


def reviews(count, seed):
    made = list(generate_reviews(count, seed))
    return {"text": [row["text"] for row in made], "label": [row["label"] for row in made]}


@pytest.fixture(scope="module")
def splits():
    return reviews(3000, 1), reviews(200, 2), reviews(1500, 3)


def rule(kind, words):
    if kind in ("token", "ordered_pair"):
        return WORDS.index(words[0])
    return int(CONTEXT.index(words[0]) == WORDS.index(words[1]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_rationale_decides_and_is_the_only_information(kind, splits):
    data = ready(*splits, plant=kind, max_tokens=60)
    texts = {}
    labels = {}
    for split in ("train", "test"):
        part = data.splits[split]
        labels[split] = part.labels
        texts[split] = []
        for row, number in enumerate(part.example_id.tolist()):
            tokens = part.tokens(number)
            marked = part.rationale(number)
            said = [token for token, mark in zip(tokens, marked, strict=True) if mark]
            assert len(said) == (1 if kind == "token" else 2)
            assert rule(kind, said) == part.labels[row]
            other = part[[row]].counterfactual[0, 1:-1][torch.tensor(marked)].tolist()
            assert rule(kind, data.vocabulary.decode(other)) == 1 - part.labels[row]
            rest = [token for token, mark in zip(tokens, marked, strict=True) if not mark]
            assert not {*WORDS, *CONTEXT} & set(rest)
            texts[split].append((tokens, rest))
    assert 0.45 < labels["test"].mean() < 0.55
    words = dict.fromkeys(("all", "rest"))
    for place, name in enumerate(words):
        bag = CountVectorizer(analyzer=lambda pair, place=place: pair[place], binary=True)
        model = LogisticRegression(max_iter=500).fit(
            bag.fit_transform(texts["train"]), labels["train"]
        )
        words[name] = roc_auc_score(
            labels["test"], model.decision_function(bag.transform(texts["test"]))
        )
    assert words["rest"] < 0.56  # two standard errors of an AUC of 0.5 are 0.03 here
    # single words say all of a token, and nothing of an order or a context
    assert words["all"] > 0.99 if kind == "token" else words["all"] < 0.56


def test_every_place_is_used_and_no_text_outgrows_the_limit(splits):
    data = ready(*splits, plant="token", max_tokens=8)
    part = data.splits["train"]
    places = Counter(
        int(np.flatnonzero(part.rationale(number))[0]) for number in part.example_id.tolist()
    )
    assert set(places) == set(range(8))
    assert part.words.lengths.max() == 8


def test_a_row_is_planted_alike_whatever_else_is_there(splits):
    train, validation, test = splits
    whole = ready(*splits, plant="ordered_pair").splits["test"]
    first = {name: values[:50] for name, values in test.items()}
    part = ready(train, validation, first, plant="ordered_pair", seed=7).splits["test"]
    assert [part.tokens(n) for n in range(50)] == [whole.tokens(n) for n in range(50)]
    assert part.labels.tolist() == whole.labels[:50].tolist()


def test_sentences_and_numbers_per_word_keep_their_words():
    texts = {
        "text": ["a b . c d .", "e f ."] * 3,
        "label": [0, 1] * 3,
        "mine": [[1, 2, 3, 4, 5, 6], [1, 2, 3]] * 3,
    }
    data = ready(
        texts,
        texts,
        texts,
        plant="token",
        sentences="rule",
        per_word={"mine": "mine"},
        tokenizer="whitespace",
    )
    part = data.splits["test"]
    for row in range(6):
        batch = part[[row]]
        mark = np.array(part.rationale(row))
        assert batch.extra["mine"][0, 1:-1].numpy()[~mark].tolist() == texts["mine"][row]
        assert np.isnan(batch.extra["mine"][0, 1:-1].numpy()[mark]).all()
        sentence = batch.sentence[0, 1:-1].tolist()
        assert sentence == sorted(sentence)
        assert set(sentence) == ({0, 1} if row % 2 == 0 else {0})


def test_what_the_data_do_not_allow():
    with pytest.raises(
        UserError, match=r"data\.plant=token replaces labels .* data\.rationale=why"
    ):
        ready(plant="token", rationale="why")
    draw = np.random.default_rng(0)  # of three classes the next one, and after the last the first
    assert [planted_words("token", label, 3, draw)[1] for label in (0, 2)] == [
        ["quovim"],
        ["zyxal"],
    ]
    three = {"text": ["a", "b", "c"] * 8, "label": ["x", "y", "z"] * 8}
    with pytest.raises(
        UserError, match=r"data\.plant=ordered_pair is for at most 2 classes, these data have 3"
    ):
        ready(three, three, three, plant="ordered_pair")
    assert ready(three, three, three, plant="token").classes == ["x", "y", "z"]
    taken = {"text": ["a zyxal", "b"], "label": [0, 1]}
    with pytest.raises(UserError, match="the word zyxal is in the data already"):
        ready(taken, taken, taken, plant="token")
