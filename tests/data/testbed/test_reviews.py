from functools import cache
from itertools import compress, product

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from attnprobe.data.testbed import RULES, generate_reviews, reviews
from attnprobe.data.testbed.drawing import stream
from tests.data.testbed.interpreter import (
    DEGREE,
    MARKERS,
    NEGATORS,
    OPPOSITE,
    PHRASES,
    POLARITY,
    label_of_rationale,
    meaning,
    necessary,
    units,
)

# a campaign: 1,500 reviews for every setting of the grammar
pytestmark = pytest.mark.whole
SHARES = ("negation", "contrast", "weighing", "counting", "order", "asides", "remarks")
"""How often each of the grammar's devices is used."""
SETTINGS = [{}, dict.fromkeys(SHARES, 0.7)]
for rule, setting in RULES.items():
    if rule != "mixed":
        SETTINGS.append({**setting, "asides": 0.6})


@pytest.mark.parametrize(
    ("text", "label", "rationale"),
    [
        ("the film was not good .", 0, "not good"),
        ("the movie never disappoints .", 1, "never disappoints"),
        ("it was hardly a triumph .", 0, "hardly triumph"),
        ("the picture was anything but dull .", 1, "anything but dull"),
        ("this one was extremely funny .", 1, "funny"),
        ("nobody would agree that it was not good .", 1, "nobody not good"),
        ("the film was charming but it was by no means a gem .", 0, "but by no means gem"),
        ("although the film was a mess , it delivers .", 1, "although delivers"),
        ("the film was good , though it was witty .", 1, "good though"),
        ("the film was good and it was witty .", None, ""),
        ("the film was dull . it shines .", 1, "shines"),
        ("it shines . the film ran for two hours .", 1, "shines"),
        ("it shines . the film was .", None, ""),
        ("the film was dull , it was witty and it was not a bore .", 1, "witty not bore"),
        ("the acting was slightly dull and the plot was moving .", 1, "slightly moving"),
        ("the acting was dull . the plot was very moving .", 1, "very moving"),
        ("the acting was superb and the plot was dreadful . the film was a bore .", 0, "bore"),
        (
            "the acting was very dull . we never sat in the front row but it rained outside . "
            "it shines .",
            1,
            "shines",
        ),
        ("the acting was superb , the plot was dreadful .", None, "superb dreadful"),
    ],
)
def test_the_interpreter_reads_sentences_as_a_person_does(text, label, rationale):
    words = units(text)
    assert meaning(words) == label
    if label is not None:
        assert list(compress(text.split(), necessary(words))) == rationale.split()


def without_rationale(row):
    """The tokens outside the rationale, with "and" for the markers in it."""
    rest = []
    for token, decides in zip(row["tokens"], row["rationale"], strict=True):
        if not decides:
            rest.append(token)
        elif token in MARKERS:
            rest.append("and")
    return rest


@cache
def reviews_of(number):
    """1,500 reviews of a setting, by its number; several tests read the same."""
    return tuple(generate_reviews(1500, seed=5, **SETTINGS[number]))


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_label_is_the_interpreters(number):
    for row in reviews_of(number):
        assert meaning(units(row["text"])) == row["label"], row["text"]
        assert row["tokens"] == row["text"].split()
        assert row["text"] == row["text"].lower()
        assert 6 <= len(row["tokens"]) <= 40


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_the_rationale_is_sufficient_and_nothing_is_left_without_it(number):
    for row in reviews_of(number):
        rationale = " ".join(compress(row["tokens"], row["rationale"]))
        assert label_of_rationale(units(rationale)) == row["label"], row["text"]
        assert meaning(units(" ".join(without_rationale(row)))) is None, row["text"]


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_each_word_of_the_rationale_is_necessary(number):
    for row in reviews_of(number):
        needed = necessary(units(row["text"]))
        opinions = [token in POLARITY for token in row["tokens"]]
        if sum(compress(opinions, row["rationale"])) == 1:
            assert needed == row["rationale"], row["text"]
        else:  # a count: all but an outvoted clause, and where three agree it takes two of them
            assert sum(compress(opinions, row["rationale"])) == 3
            assert all(compress(row["rationale"], needed))
            assert sum(compress(opinions, needed)) in (0, 2)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_counterfactual_has_the_other_label_and_no_other_word_turns_it(setting):
    for row in generate_reviews(800, seed=6, **setting):
        tokens = row["tokens"]
        assert meaning(units(row["counterfactual"])) == 1 - row["label"], row["text"]
        changed = row["counterfactual"].split()
        assert len(changed) == len(tokens)
        for place, token in enumerate(tokens):
            decides = row["rationale"][place]
            is_opinion = token in POLARITY
            expected = OPPOSITE[token] if decides and is_opinion else token
            assert changed[place] == expected
            if is_opinion and not decides:
                turned = tokens.copy()
                turned[place] = OPPOSITE[token]
                assert meaning(units(" ".join(turned))) == row["label"], row["text"]


@pytest.mark.parametrize("index", range(400))
def test_nothing_but_the_last_draw_knows_the_label(monkeypatch, index):
    """Turn the last random number over: the review's counterfactual comes out.

    Hence each review and its counterfactual are equally likely, and so is either label for what
    they share.
    """
    source = stream(4, "review", index)
    drawn = []

    def recorded():
        drawn.append(source())
        return drawn[-1]

    monkeypatch.setattr(reviews, "stream", lambda *_: recorded)
    row = next(generate_reviews(1, seed=4))
    replayed = iter([*drawn[:-1], 1 - drawn[-1]])
    monkeypatch.setattr(reviews, "stream", lambda *_: replayed.__next__)
    turned = next(generate_reviews(1, seed=4))
    assert turned["label"] == 1 - row["label"]
    assert turned["rationale"] == row["rationale"]
    assert turned["text"] == row["counterfactual"]
    assert turned["counterfactual"] == row["text"]


def test_no_setting_breaks_the_grammar():
    for shares in product((0, 1), repeat=len(SHARES)):
        setting = dict(zip(SHARES, shares, strict=True))
        for row in generate_reviews(10, seed=1, **setting):
            assert meaning(units(row["text"])) == row["label"]
            assert 6 <= len(row["tokens"]) <= 40


def test_rows_are_balanced_varied_and_depend_on_seed_and_number_alone():
    rows = list(generate_reviews(5000, seed=2))
    assert list(generate_reviews(7, seed=2)) == rows[:7]
    assert next(generate_reviews(1, seed=3)) != rows[0]

    positive = sum(row["label"] for row in rows)
    texts = {row["text"] for row in rows}
    words = set()
    for row in rows:
        words |= set(row["tokens"])
    assert 0.47 < positive / 5000 < 0.53
    assert len(texts) > 4900
    assert 200 < len(words) < 500


@pytest.fixture(scope="module")
def rationales():
    """The words of each review that decide."""
    rationales = []
    for row in generate_reviews(4000, 4):
        words = compress(row["tokens"], row["rationale"])
        rationales.append(list(words))
    return rationales


SPELLED_PHRASES = {phrase.replace(" ", "_") for phrase in PHRASES}
DEVICES = {*(NEGATORS - SPELLED_PHRASES), "anything", "far", *MARKERS, *DEGREE}


@pytest.mark.parametrize("device", sorted(DEVICES))
def test_every_device_of_the_grammar_is_used(rationales, device):
    assert any(device in rationale for rationale in rationales)


def test_a_word_may_be_negated_twice(rationales):
    negators = set()
    for rationale in rationales:
        negators.add(sum(word in NEGATORS for word in rationale))
    assert 2 in negators


def bag_of_words_auc(training_texts, training_labels, texts, labels):
    bag = CountVectorizer(token_pattern=r"\S+")
    model = LogisticRegression(max_iter=300, C=0.1)
    model.fit(bag.fit_transform(training_texts), training_labels)
    return roc_auc_score(labels, model.decision_function(bag.transform(texts)))


def text_inside(row):
    return " ".join(compress(row["tokens"], row["rationale"]))


def text_outside(row):
    outside = [not decides for decides in row["rationale"]]
    return " ".join(compress(row["tokens"], outside))


def test_a_bag_of_words_knows_nothing_without_the_rationale():
    training = list(generate_reviews(3000, seed=0))
    tested = list(generate_reviews(10_000, seed=1))

    def auc(text_of):
        return bag_of_words_auc(
            [text_of(row) for row in training],
            [row["label"] for row in training],
            [text_of(row) for row in tested],
            [row["label"] for row in tested],
        )

    # the rationale's words say much, negation and counting aside; the whole text says less; the
    # rest says nothing
    inside = auc(text_inside)
    assert inside > 0.75
    assert inside > auc(lambda row: row["text"]) + 0.05
    assert abs(auc(text_outside) - 0.5) < 0.03  # five standard errors
