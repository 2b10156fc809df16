from itertools import product

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
    alone,
    meaning,
    necessary,
    units,
)

SETTINGS = [
    {},
    dict.fromkeys(
        ("negation", "contrast", "weighing", "counting", "order", "asides", "remarks"), 0.7
    ),
    *({**RULES[rule], "asides": 0.6} for rule in RULES if rule != "mixed"),
]


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
            "the acting was very dull . we never sat in the front row but it rained outside . it shines .",
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
        assert [
            t for t, decides in zip(text.split(), necessary(words), strict=True) if decides
        ] == rationale.split()


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_label_is_the_interpreters_and_the_rationale_is_necessary_and_sufficient(setting):
    for row in generate_reviews(1500, seed=5, **setting):
        words = units(row["text"])
        assert meaning(words) == row["label"], row["text"]
        assert row["tokens"] == row["text"].split()
        assert row["text"] == row["text"].lower()
        assert 6 <= len(row["tokens"]) <= 40
        marked = [t for t, decides in zip(row["tokens"], row["rationale"], strict=True) if decides]
        pairs = [*zip(row["tokens"], row["rationale"], strict=True)]
        rest = ["and" if decides else t for t, decides in pairs if not decides or t in MARKERS]
        assert alone(units(" ".join(marked))) == row["label"], row["text"]
        assert meaning(units(" ".join(rest))) is None, row["text"]
        needed = necessary(words)
        opinions = sum(t in POLARITY for t in marked)
        if opinions == 1:
            assert needed == row["rationale"], row["text"]
        else:  # a count: all but an outvoted clause, and where three agree it takes two of them
            assert opinions == 3
            assert all(
                marked for need, marked in zip(needed, row["rationale"], strict=True) if need
            )
            assert sum(
                t in POLARITY for t, need in zip(row["tokens"], needed, strict=True) if need
            ) in (0, 2)


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_counterfactual_has_the_other_label_and_no_other_word_turns_it(setting):
    for row in generate_reviews(800, seed=6, **setting):
        tokens = row["tokens"]
        other = row["counterfactual"].split()
        assert meaning(units(row["counterfactual"])) == 1 - row["label"], row["text"]
        for token, changed, decides in zip(tokens, other, row["rationale"], strict=True):
            assert changed == (OPPOSITE[token] if decides and token in POLARITY else token)
        for i, token in enumerate(tokens):
            if token in POLARITY and not row["rationale"][i]:
                turned = [*tokens[:i], OPPOSITE[token], *tokens[i + 1 :]]
                assert meaning(units(" ".join(turned))) == row["label"], row["text"]


def test_nothing_but_the_last_draw_knows_the_label(monkeypatch):
    """Turn the last random number over: the same review with the other label comes out, its
    counterfactual. Hence each review and its counterfactual are equally likely, and so is either
    label for what they share."""
    for index in range(400):
        drawn = []

        def recording(index=index, drawn=drawn):
            source = stream(4, "review", index)
            return lambda: drawn.append(source()) or drawn[-1]

        monkeypatch.setattr(reviews, "stream", lambda *_: recording())
        row = next(generate_reviews(1, seed=4))
        replayed = iter([*drawn[:-1], 1 - drawn[-1]])
        monkeypatch.setattr(reviews, "stream", lambda *_, replayed=replayed: replayed.__next__)
        turned = next(generate_reviews(1, seed=4))
        assert turned["label"] == 1 - row["label"]
        assert turned["rationale"] == row["rationale"]
        assert (turned["text"], turned["counterfactual"]) == (row["counterfactual"], row["text"])


def test_no_setting_breaks_the_grammar():
    names = ("negation", "contrast", "weighing", "counting", "order", "asides", "remarks")
    for shares in product((0, 1), repeat=len(names)):
        for row in generate_reviews(10, seed=1, **dict(zip(names, shares, strict=True))):
            assert meaning(units(row["text"])) == row["label"]
            assert 6 <= len(row["tokens"]) <= 40


def test_rows_are_balanced_varied_and_depend_on_seed_and_number_alone():
    rows = list(generate_reviews(5000, seed=2))
    assert list(generate_reviews(7, seed=2)) == rows[:7]
    assert next(generate_reviews(1, seed=3)) != rows[0]
    assert 0.47 < sum(row["label"] for row in rows) / 5000 < 0.53
    assert len({row["text"] for row in rows}) > 4900
    assert 200 < len({token for row in rows for token in row["tokens"]}) < 500


def test_every_device_of_the_grammar_is_used():
    rationales = [
        [t for t, d in zip(r["tokens"], r["rationale"], strict=True) if d]
        for r in generate_reviews(4000, 4)
    ]
    for device in (
        (NEGATORS - {p.replace(" ", "_") for p in PHRASES})
        | {"anything", "far"}
        | MARKERS
        | set(DEGREE)
    ):
        assert any(device in rationale for rationale in rationales), device
    assert any(sum(word in NEGATORS for word in rationale) == 2 for rationale in rationales)


def parts(count, seed):
    """Labels, whole texts, and their words in the rationale and outside, as texts."""
    rows = list(generate_reviews(count, seed))
    inside, outside = (
        [
            " ".join(t for t, d in zip(r["tokens"], r["rationale"], strict=True) if d == keep)
            for r in rows
        ]
        for keep in (True, False)
    )
    return [r["label"] for r in rows], [r["text"] for r in rows], inside, outside


def bag_of_words_auc(training, texts, labels, tested):
    bag = CountVectorizer(token_pattern=r"\S+")
    model = LogisticRegression(max_iter=300, C=0.1).fit(bag.fit_transform(training), labels)
    return roc_auc_score(tested, model.decision_function(bag.transform(texts)))


def test_a_bag_of_words_knows_nothing_without_the_rationale():
    labels, whole, inside, outside = parts(3000, seed=0)
    tested, *others = parts(10_000, seed=1)
    auc = [
        bag_of_words_auc(*pair, labels, tested)
        for pair in zip((whole, inside, outside), others, strict=True)
    ]
    # the rationale's words alone say much, negation and counting aside; the whole text less; the
    # rest nothing
    assert auc[1] > 0.75
    assert auc[1] > auc[0] + 0.05
    assert abs(auc[2] - 0.5) < 0.03  # five standard errors
