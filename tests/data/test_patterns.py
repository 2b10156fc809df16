import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.columns import Columns
from attnprobe.data.text import LONGEST, matching

SLOW = ["(a|aa)+b", "(aa|aa)" * 25, "(?:a{1,200}){1,200}b"]


@pytest.mark.parametrize("pattern", SLOW)
def test_a_pattern_that_takes_long_on_a_word_is_given_up(pattern, monkeypatch):
    monkeypatch.setattr("attnprobe.data.text.PATIENCE", 0.1)
    with pytest.raises(UserError, match=r"takes more than 0\.1 s for the word 'aaa"):
        matching(["a", "a" * LONGEST], Columns(candidates_pattern=pattern).candidates_pattern)


@pytest.mark.parametrize(
    ("pattern", "words", "matches"),
    [
        (r"@entity\d+", ["@entity1", "an", "@entity"], ["@entity1"]),
        (r"(?i)[a-z]+-[a-z]+", ["Well-known", "known", "a-b-c"], ["Well-known"]),
        (r"\w{2,5}(?<!ing)", ["going", "went", "go"], ["went", "go"]),
        (r"(per|loc|org)_\d{1,3}", ["per_17", "org_", "x"], ["per_17"]),
        (r"[\w-]+", ["a-b-c", "!"], ["a-b-c"]),
        (r"(.)\w*\1", ["abba", "abc"], ["abba"]),
        (r"(a+)+b|\w+(-\w+)*", ["a" * LONGEST, "b-c", "-"], ["a" * LONGEST, "b-c"]),
        (r"\d{4}(-\d{2}){2}", ["2026-11-22", "2026"], ["2026-11-22"]),
    ],
)
def test_ordinary_patterns_find_their_words(pattern, words, matches):
    assert Columns(candidates_pattern=pattern).candidates_pattern == pattern
    assert matching([*words, *words], pattern) == matches
