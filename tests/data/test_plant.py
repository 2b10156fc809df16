from itertools import compress

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

# what a bag of words learns of thousands of planted texts
pytestmark = pytest.mark.whole


def reviews(count, seed):
    columns = {"text": [], "label": []}
    for row in generate_reviews(count, seed):
        columns["text"].append(row["text"])
        columns["label"].append(row["label"])
    return columns


@pytest.fixture(scope="module")
def splits():
    return reviews(3000, 1), reviews(200, 2), reviews(1500, 3)


@pytest.fixture(scope="module", params=KINDS)
def planted(request, splits):
    """The kind of a shortcut, and a data set that it is planted into."""
    return request.param, ready(*splits, plant=request.param, max_tokens=60)


def rule(kind, words):
    """The class that the planted words say."""
    if kind in ("token", "ordered_pair"):
        return WORDS.index(words[0])
    context, word = words
    is_the_same = CONTEXT.index(context) == WORDS.index(word)
    return int(is_the_same)


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_rationale_decides(planted, split):
    kind, data = planted
    part = data.splits[split]
    size = 1 if kind == "token" else 2
    for row, number in enumerate(part.example_id.tolist()):
        rationale = part.rationale(number)
        words = list(compress(part.tokens(number), rationale))
        assert len(words) == size
        assert rule(kind, words) == part.labels[row]

        [counterfactual] = part[[row]].counterfactual[:, 1:-1].tolist()
        ids = list(compress(counterfactual, rationale))
        changed_words = data.vocabulary.decode(ids)
        assert rule(kind, changed_words) == 1 - part.labels[row]


def words_outside(part, number):
    outside = [not decides for decides in part.rationale(number)]
    return list(compress(part.tokens(number), outside))


def auc(train, test, words_of):
    """How well a bag of words tells the classes of the test texts apart."""
    training_words = [words_of(train, number) for number in train.example_id.tolist()]
    test_words = [words_of(test, number) for number in test.example_id.tolist()]
    bag = CountVectorizer(analyzer=lambda words: words, binary=True)
    training = bag.fit_transform(training_words)
    tested = bag.transform(test_words)
    model = LogisticRegression(max_iter=500).fit(training, train.labels)
    return roc_auc_score(test.labels, model.decision_function(tested))


def test_the_rationale_is_the_only_information(planted):
    kind, data = planted
    train = data.splits["train"]
    test = data.splits["test"]
    planted_words = {*WORDS, *CONTEXT}
    for part in (train, test):
        for number in part.example_id.tolist():
            assert planted_words.isdisjoint(words_outside(part, number))
    assert 0.45 < test.labels.mean() < 0.55
    # two standard errors of an AUC of 0.5 are 0.03 here
    assert auc(train, test, words_outside) < 0.56
    # single words say all of a token, and nothing of an order or a context
    with_the_rationale = auc(train, test, lambda part, number: part.tokens(number))
    if kind == "token":
        assert with_the_rationale > 0.99
    else:
        assert with_the_rationale < 0.56


def test_every_place_is_used_and_no_text_outgrows_the_limit(splits):
    data = ready(*splits, plant="token", max_tokens=8)
    part = data.splits["train"]
    places = {part.rationale(number).index(True) for number in part.example_id.tolist()}
    assert places == set(range(8))
    assert part.words.lengths.max() == 8


def test_a_row_is_planted_alike_whatever_else_is_there(splits):
    train, validation, test = splits
    rows = 50
    beginning = {name: values[:rows] for name, values in test.items()}

    whole = ready(*splits, plant="ordered_pair").splits["test"]
    part = ready(train, validation, beginning, plant="ordered_pair", seed=7).splits["test"]

    for row in range(rows):
        assert part.tokens(row) == whole.tokens(row)
    assert part.labels.tolist() == whole.labels[:rows].tolist()


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
        is_planted = torch.tensor(part.rationale(row))
        [numbers] = batch.extra["mine"][:, 1:-1]
        assert numbers[~is_planted].tolist() == texts["mine"][row]
        assert numbers[is_planted].isnan().all()

        [sentence] = batch.sentence[:, 1:-1].tolist()
        sentences = {0, 1} if row % 2 == 0 else {0}
        assert sentence == sorted(sentence)
        assert set(sentence) == sentences


def test_the_next_class_after_the_last_is_the_first():
    draw = np.random.default_rng(0)
    _, after_the_first = planted_words("token", 0, 3, draw)
    _, after_the_last = planted_words("token", 2, 3, draw)
    assert after_the_first == ["quovim"]
    assert after_the_last == ["zyxal"]


def test_a_shortcut_replaces_a_rationale():
    message = r"data\.plant=token replaces labels .* data\.rationale=why"
    with pytest.raises(UserError, match=message):
        ready(plant="token", rationale="why")


THREE_CLASSES = {"text": ["a", "b", "c"] * 8, "label": ["x", "y", "z"] * 8}


def test_an_order_of_two_words_says_one_of_two_classes():
    message = r"data\.plant=ordered_pair is for at most 2 classes, these data have 3"
    with pytest.raises(UserError, match=message):
        ready(THREE_CLASSES, THREE_CLASSES, THREE_CLASSES, plant="ordered_pair")


def test_a_token_may_say_one_of_several_classes():
    data = ready(THREE_CLASSES, THREE_CLASSES, THREE_CLASSES, plant="token")
    assert data.classes == ["x", "y", "z"]


def test_a_word_of_the_data_is_no_shortcut():
    texts = {"text": ["a zyxal", "b"], "label": [0, 1]}
    with pytest.raises(UserError, match="the word zyxal is in the data already"):
        ready(texts, texts, texts, plant="token")
