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
    stripped = [sentence.strip() for sentence in split_sentences(text)]
    assert stripped == [sentence.strip() for sentence in sentences]


@pytest.mark.parametrize("seed", range(30))
def test_sentences_joined_are_the_text(seed):
    text = "".join(np.random.default_rng(seed).choice([*'aB.!?"( )\n', "<br>"], 60))
    assert "".join(split_sentences(text)) == text
    tokens = TextRules(sentences="spacy").tokens(text)
    assert "".join(tokens) == "".join(TextRules().tokens(text))


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


@pytest.mark.parametrize(
    ("sentences", "text"),
    [
        ("spacy", "A bee. C"),
        ("rule", "A bee. C"),
        ("column", ["A bee.", " ", "C"]),
        ("column", "A bee. C"),  # a new text need not be a list
    ],
)
def test_every_way_to_sentences_numbers_every_token(sentences, text):
    tokens, numbers = TextRules(sentences=sentences).read(text)
    assert tokens == ["a", "bee", ".", "c"]
    assert numbers == [0, 0, 0, 1]


def test_without_sentences_no_token_has_a_number():
    assert TextRules().read("A b. C")[1] is None


def test_a_sentence_without_words_does_not_count():
    tokens, numbers = TextRules(sentences="spacy", clean=["nonword"]).read("A bee. ?! Sea.")
    assert tokens == ["a", "bee", "sea"]
    assert numbers == [0, 0, 1]


def test_an_unknown_way_to_sentences_is_refused():
    expected = "spacy, rule, column, a whole number of at least 1 or null"
    with pytest.raises(UserError, match=rf"data\.sentences=model: expected {expected}"):
        TextRules(sentences="model")


TEXTS = {"text": ["Good film. I laughed.", "Bad.", "Oh. No. C d e f."], "label": [1, 0, 1]}


def test_batches_number_sentences_from_0_and_mark_the_rest():
    data = ready(TEXTS, TEXTS, TEXTS, sentences="spacy", max_tokens=4)

    batch = data.splits["test"][[0, 1]]

    assert batch.sentence.tolist() == [[-1, 0, 0, 0, 1, -1], [-1, 0, 0, -1, -1, -1]]
    assert ((batch.sentence >= 0) == batch.content).all()
    assert data.counts["test"]["sentences per text"] == {"min": 1, "max": 3}
    # the same as texts that come by themselves
    batch_of_texts = data.pipeline.batch_of(TEXTS["text"][:2])
    assert batch_of_texts.sentence.tolist() == batch.sentence.tolist()


def test_where_sentences_are_not_asked_for_a_batch_has_none():
    batch = ready(TEXTS, TEXTS, TEXTS).splits["test"][[0]]
    assert batch.sentence is None


LISTS = {"text": [["Good", "Bad film"], ["x"]], "label": [1, 0]}


def test_sentences_as_a_column():
    data = ready(LISTS, LISTS, LISTS, sentences="column")
    assert data.splits["test"].tokens(0) == ["good", "bad", "film"]
    stored_batch = data.splits["test"][[0]]
    batch = data.pipeline.batch_of([["Good", "Bad film"]])
    assert stored_batch.sentence.tolist() == [[-1, 0, 1, 1, -1]]
    assert batch.sentence.tolist() == [[-1, 0, 1, 1, -1]]


def test_a_text_is_no_list_of_sentences():
    with pytest.raises(
        UserError,
        match=r"column expects a list of sentences in every cell, row 0 of train has 'Good",
    ):
        ready(sentences="column")


def test_a_list_of_sentences_is_no_text():
    with pytest.raises(UserError, match=r"a list of sentences is read with data\.sentences=column"):
        ready(LISTS, LISTS, LISTS)


FOUR_TEXTS = {
    "text": ["oh. no. well.", "a b c d e f g h i jay.", "a bee.", "oh. no."],
    "label": [0, 1, 0, 1],
}


@pytest.fixture(scope="module")
def limited():
    return ready(
        FOUR_TEXTS,
        FOUR_TEXTS,
        FOUR_TEXTS,
        sentences="spacy",
        max_sentences=2,
        max_sentence_tokens=8,
        max_tokens=3,
    )


@pytest.mark.parametrize("split", ["train", "validation"])
def test_limits_on_sentences_look_at_the_whole_text(limited, split):
    assert limited.splits[split].example_id.tolist() == [2, 3]
    dropped = limited.counts[split]["dropped"]
    assert dropped["too many sentences"] == 1
    assert dropped["sentence too long"] == 1


def test_limits_on_sentences_leave_the_test_split_whole(limited):
    assert limited.sizes["test"] == 4
    assert limited.counts["test"]["dropped"]["too many sentences"] == 0
    assert limited.counts["test"]["sentences per text"] == {"min": 1, "max": 3}


def test_limits_on_sentences_hold_where_they_are_asked_for():
    data = ready(
        FOUR_TEXTS,
        FOUR_TEXTS,
        FOUR_TEXTS,
        sentences="spacy",
        max_sentences=2,
        sentence_limits_on=["train"],
    )
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
