import json
from importlib import import_module

import pytest

from attnprobe.data.columns import Columns
from attnprobe.data.patterns import LONGEST, matching, ways
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import TextRules
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.errors import UserError

ENDLESS = ["(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*)*x", "((a?)?)*b", "(a?){50}a{50}", "a*a*a*b", "(?:a|)+b", "(aa|aa)" * 25,
           "(?=(a+)+b)a", "(?>(a+)+)b", "((){200}){200}", "((a{60}){60}){60}", "(){60000}", "(a*)*+b"]  # fmt: skip
"""Each takes exponential time on some word, or counts to billions."""
parsed = import_module("re._parser").parse


@pytest.mark.parametrize("pattern", [*ENDLESS, "(", "[", "(" * 5000, "a" * 201])
def test_what_is_no_pattern_or_may_take_for_ever_is_refused_where_it_is_given(pattern):
    with pytest.raises(UserError, match=r"^data\.candidates_pattern="):
        Columns(candidates_pattern=pattern)


@pytest.mark.parametrize(
    ("pattern", "words", "found"),
    [
        (r"@entity\d+", ["@entity1", "an", "@entity"], ["@entity1"]),
        (r"(?i)[a-z]+-[a-z]+", ["Well-known", "known", "a-b-c"], ["Well-known"]),
        (r"\w{2,5}(?<!ing)", ["going", "went", "go"], ["went", "go"]),
        (r"(per|loc|org)_\d{1,3}", ["per_17", "org_", "x"], ["per_17"]),
        (r"[\w-]+", ["a-b-c", "!"], ["a-b-c"]),
        (r"(.)\w*\1", ["abba", "abc"], ["abba"]),
        (r"\d{4}(-\d{2}){2}", ["2026-11-22", "2026"], ["2026-11-22"]),
    ],
)
def test_ordinary_patterns_find_their_words(pattern, words, found):
    assert Columns(candidates_pattern=pattern).candidates_pattern == pattern
    assert matching([*words, *words], pattern) == found


def test_no_pattern_is_tried_on_an_endless_word():
    assert matching(["a" * LONGEST, "a" * (LONGEST + 1)], "a+") == ["a" * LONGEST]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("abc", 1),
        ("a?b?", 4),
        ("ab|cd|ef", 3),
        ("(aa|bb){0,2}", 7),
        ("[abc]{0,3}", 4),
        ("a*", 201),
        ("a*b*", 201 * 201),
    ],
)
def test_ways_are_those_of_a_count_by_hand(pattern, expected):
    assert ways(parsed(pattern)) == expected


def test_a_run_directory_from_elsewhere_cannot_bring_one(tmp_path):
    pipeline = TextPipeline(TextRules(), Vocabulary(["a"]), ["x", "y"])
    pipeline.save(tmp_path)
    content = json.loads((tmp_path / "pipeline.json").read_text())
    (tmp_path / "pipeline.json").write_text(json.dumps(content | {"candidates_pattern": "(a+)+b"}))
    with pytest.raises(UserError, match=r"pipeline\.json: candidates_pattern=\(a\+\)\+b could take very long"):
        TextPipeline.load(tmp_path)
