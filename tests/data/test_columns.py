from itertools import compress

import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.columns import Columns
from attnprobe.data.passages import places_of
from attnprobe.data.text import TextRules
from tests.data.toys import ready

TEXT = "The  DAMNED thing, don't\tbuy 100 İt!"


@pytest.mark.parametrize("tokenizer", ["spacy", "whitespace"])
def test_places_are_where_the_tokens_stand(tokenizer):
    tokens = TextRules(tokenizer=tokenizer, token_rules=()).tokens(TEXT)
    texts = [TEXT[start:end] for start, end in places_of(TEXT, tokens)]
    assert texts == tokens


@pytest.fixture(scope="module")
def marked():
    """A split whose texts are marked by characters, by one person and by several."""
    start = TEXT.index("NED")
    first_letter = [start, start + 1]
    later_letters = [start + 7, start + 9]
    whole_word = [start, start + 3]
    first_person = [[0, 3]]
    third_person = [whole_word]
    rows = {
        "text": [TEXT, "good", "a b"],
        "label": [0, 1, 1],
        "why": [[first_letter, later_letters], [], [[7, 9]]],
        "people": [[first_person, [], third_person], [], [[[0, 1]]]],
    }
    data = ready(
        rows,
        rows,
        rows,
        rationale="why",
        rationale_kind="characters",
        annotators="people",
        tokenizer="spacy",
        token_rules=["lower", "digits"],
    )
    return data.splits["test"]


def test_a_token_is_marked_by_any_of_its_characters(marked):
    assert list(compress(marked.tokens(0), marked.rationale(0))) == ["damned", "thing"]
    assert marked.rationale(1) == [False]


def test_characters_that_the_text_does_not_have_are_no_rationale(marked):
    assert marked.rationale(2) is None


def test_each_annotator_has_two_bits_of_a_number(marked):
    annotators = marked[[0, 1, 2]].annotators
    present = 0b010101
    by_first = present | 0b10
    by_third = present | 0b100000
    assert annotators[0, 1:4].tolist() == [by_first, by_third, present]
    assert not annotators[1:].any()  # nobody marked the second text, and a single person the third


@pytest.mark.parametrize(
    ("setting", "value"), [("clean", ["nonword"]), ("token_rules", ["free_punctuation"])]
)
def test_characters_cannot_be_counted_in_a_changed_text(setting, value):
    with pytest.raises(UserError, match=f"data.{setting}: {value[0]} changes the text"):
        ready(rationale="why", rationale_kind="characters", **{setting: value})


@pytest.mark.parametrize("setting", ["text", "text2"])
def test_the_texts_are_not_their_own_classes(setting):
    with pytest.raises(UserError, match=r"data\.label=review is the column of the texts as well"):
        Columns(label="review", **{setting: "review"})
