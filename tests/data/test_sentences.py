import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.text import TextRules, sentence_numbers, split_sentences
from tests.data.toys import ready


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rains.", "I stay in!", "You?"],
        [
            "Dr. Smith met Mr. J. Doe at 3 p.m. in the U.S. army.",
            "He left.",
        ],  # abbreviations and initials
        ["It cost $3.50, e.g. a lot.", "Version 2.0 is out."],
        ["Wait... what… is this?", "No way!!!", "Really?!", "Yes."],  # an ellipsis ends nothing
        ["It ends here.\n\n", "A new paragraph without a stop\n\n", "The last one"],
        ["a line\nthat was wrapped.", "another"],
        ["A film.<br /><br />", "no stop<br>", "The end."],
        ['He said "hi".', "Then he left."],
        [
            '"Why?"',
            "she asked.",
            '"Go on!"',
            "(He did.)",
            "(“Did he?”)",
            "[Yes.]",
        ],  # marks stay with their sentence
        ["one"],
    ],
)
def test_texts_are_split_where_their_sentences_end(sentences):
    text = " ".join(sentences).replace("\n ", "\n")
    assert [sentence.strip() for sentence in split_sentences(text)] == [
        sentence.strip() for sentence in sentences
    ]


def test_sentences_joined_are_the_text():
    for seed in range(30):
        text = "".join(np.random.default_rng(seed).choice([*'aB.!?"( )\n', "<br>"], 60))
        assert "".join(split_sentences(text)) == text
        assert "".join(TextRules(sentences="spacy").tokens(text)) == "".join(
            TextRules().tokens(text)
        )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a . b", [0, 0, 1]),
        ("a ! ? b .", [0, 0, 0, 1, 1]),
        ("`` a . '' b ( c . ) d", [0, 0, 0, 0, 1, 1, 1, 1, 1, 2]),
        (". a", [0, 1]),
        ("a ... b u.s. c", [0, 0, 0, 0, 0]),
        ("", []),
    ],
)
def test_the_rule_numbers_the_sentences_of_tokens(text, numbers):
    assert sentence_numbers(text.split()) == numbers


def test_every_way_to_sentences_numbers_every_token():
    assert TextRules().read("A b. C")[1] is None
    for way, text in {
        "spacy": "A bee. C",
        "rule": "A bee. C",
        "column": ["A bee.", " ", "C"],
    }.items():
        assert TextRules(sentences=way).read(text) == (["a", "bee", ".", "c"], [0, 0, 0, 1])
    assert TextRules(sentences="column").read("A bee. C")[1] == [
        0,
        0,
        0,
        1,
    ]  # new text need not be a list
    assert TextRules(sentences="spacy", clean=["nonword"]).read("A bee. ?! Sea.") == (
        ["a", "bee", "sea"],
        [0, 0, 1],
    )
    with pytest.raises(
        UserError, match=r"data\.sentences=model: expected spacy, rule, column or null"
    ):
        TextRules(sentences="model")


TEXTS = {"text": ["Good film. I laughed.", "Bad.", "Oh. No. C d e f."], "label": [1, 0, 1]}


def test_batches_number_sentences_from_0_and_mark_the_rest():
    data = ready(TEXTS, TEXTS, TEXTS, sentences="spacy", max_tokens=4)
    batch = data.splits["test"][[0, 1]]
    assert batch.sentence.tolist() == [[-1, 0, 0, 0, 1, -1], [-1, 0, 0, -1, -1, -1]]
    assert batch.sentence.tolist() == data.pipeline.batch_of(TEXTS["text"][:2]).sentence.tolist()
    assert ((batch.sentence >= 0) == batch.content).all()
    assert data.counts["test"]["sentences per text"] == {"min": 1, "max": 3}
    assert ready(TEXTS, TEXTS, TEXTS).splits["test"][[0]].sentence is None


def test_sentences_as_a_column():
    lists = {"text": [["Good", "Bad film"], ["x"]], "label": [1, 0]}
    data = ready(lists, lists, lists, sentences="column")
    assert data.splits["test"].tokens(0) == ["good", "bad", "film"]
    assert data.splits["test"][[0]].sentence.tolist() == [[-1, 0, 1, 1, -1]]
    assert data.pipeline.batch_of([["Good", "Bad film"]]).sentence.tolist() == [[-1, 0, 1, 1, -1]]
    with pytest.raises(
        UserError,
        match=r"column expects a list of sentences in every cell, row 0 of train has 'Good",
    ):
        ready(sentences="column")
    with pytest.raises(UserError, match=r"a list of sentences is read with data\.sentences=column"):
        ready(lists, lists, lists)


def test_limits_hold_where_they_are_asked_for_and_look_at_the_whole_text():
    many = {
        "text": ["oh. no. well.", "a b c d e f g h i jay.", "a bee.", "oh. no."],
        "label": [0, 1, 0, 1],
    }
    data = ready(
        many, many, many, sentences="spacy", max_sentences=2, max_sentence_tokens=8, max_tokens=3
    )
    for split in ("train", "validation"):
        assert data.splits[split].example_id.tolist() == [2, 3]
        dropped = data.counts[split]["dropped"]
        assert (dropped["too many sentences"], dropped["sentence too long"]) == (1, 1)
    assert data.sizes["test"] == 4
    assert data.counts["test"]["dropped"]["too many sentences"] == 0
    assert data.counts["test"]["sentences per text"] == {"min": 1, "max": 3}
    data = ready(many, many, many, sentences="spacy", max_sentences=2, sentence_limits_on=["train"])
    assert data.sizes == {"train": 3, "validation": 4, "test": 4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"max_sentences": 3},
            r"data\.max_sentences=3 needs sentences: set data\.sentences=spacy, or",
        ),
        (
            {"rationale": "why", "rationale_kind": "sentences"},
            r"rationale_kind=sentences needs sentences",
        ),
        (
            {"sentences": "spacy", "max_sentence_tokens": 1},
            r"no row of the train split has at most .*at least 1, and",
        ),
    ],
)
def test_limits_that_cannot_be(change, message):
    with pytest.raises(UserError, match=message):
        ready(TEXTS | {"text": ["a b", "c d", "e f"]}, TEXTS, TEXTS, **change)
