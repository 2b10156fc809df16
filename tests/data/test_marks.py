import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.columns import places_of
from attnprobe.data.text import TextRules
from tests.data.given import ready

TEXT = "The  DAMNED thing, don't\tbuy 100 İt!"


@pytest.mark.parametrize("tokenizer", ["spacy", "whitespace"])
def test_places_are_where_the_tokens_stand(tokenizer):
    tokens = TextRules(tokenizer=tokenizer, token_rules=()).tokens(TEXT)
    assert [TEXT[start:end] for start, end in places_of(TEXT, tokens)] == tokens


def test_a_token_is_marked_by_any_of_its_characters():
    start = TEXT.index("NED")
    rows = {
        "text": [TEXT, "good", "a b"],
        "label": [0, 1, 1],
        "why": [[[start, start + 1], [start + 7, start + 9]], [], [[7, 9]]],
        "people": [[[[0, 3]], [], [[start, start + 3]]], [], [[[0, 1]]]],
    }
    settings = {
        "rationale": "why",
        "rationale_kind": "characters",
        "annotators": "people",
        "tokenizer": "spacy",
        "token_rules": ["lower", "digits"],
    }
    data = ready(rows, rows, rows, **settings)
    test = data.splits["test"]
    words = test.tokens(0)
    assert [word for word, there in zip(words, test.rationale(0), strict=True) if there] == [
        "damned",
        "thing",
    ]
    assert test.rationale(1) == [False]
    assert test.rationale(2) is None  # there are no such characters
    batch = test[[0, 1, 2]]
    present = 0b010101
    assert batch.annotators[0, 1:4].tolist() == [present | 0b10, present | 0b100000, present]
    assert not batch.annotators[1:].any()  # nobody, and one alone


@pytest.mark.parametrize(
    ("setting", "value"), [("clean", ["nonword"]), ("token_rules", ["free_punctuation"])]
)
def test_characters_cannot_be_counted_in_a_changed_text(setting, value):
    with pytest.raises(UserError, match=f"data.{setting}: {value[0]} changes the text"):
        ready(rationale="why", rationale_kind="characters", **{setting: value})
