import json

import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.columns import Columns
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import LONGEST, TextRules, matching
from attnprobe.data.vocabulary import Vocabulary

SLOW = ["(a|aa)+b", "(aa|aa)" * 25, "(?:a{1,200}){1,200}b"]
"""Each takes exponential time on some word."""


@pytest.mark.parametrize(
    "pattern", ["((){200}){200}{200}", "((a{60}){60}){60}", "(){60000}", "(){60000,}", "(", "[", "(" * 5000, "a" * 201]
)
def test_what_is_no_pattern_or_takes_for_ever_to_compile_is_refused_where_it_is_given(pattern):
    with pytest.raises(UserError, match=r"^data\.candidates_pattern="):
        Columns(candidates_pattern=pattern)


@pytest.mark.parametrize("pattern", SLOW)
def test_a_pattern_that_takes_long_on_a_word_is_given_up(pattern, monkeypatch):
    monkeypatch.setattr("attnprobe.data.text.PATIENCE", 0.1)
    with pytest.raises(UserError, match=r"takes more than 0\.1 s for the word 'aaa"):
        matching(["a", "a" * LONGEST], Columns(candidates_pattern=pattern).candidates_pattern)


@pytest.mark.parametrize(
    ("pattern", "words", "found"),
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
def test_ordinary_patterns_find_their_words(pattern, words, found):
    assert Columns(candidates_pattern=pattern).candidates_pattern == pattern
    assert matching([*words, *words], pattern) == found


def test_no_pattern_is_tried_on_an_endless_word():
    assert matching(["a" * LONGEST, "a" * (LONGEST + 1)], "a+") == ["a" * LONGEST]


def test_a_run_directory_from_elsewhere_cannot_bring_one(tmp_path):
    pipeline = TextPipeline(TextRules(), Vocabulary(["a"]), ["x", "y"])
    pipeline.save(tmp_path)
    content = json.loads((tmp_path / "pipeline.json").read_text())
    (tmp_path / "pipeline.json").write_text(json.dumps(content | {"candidates_pattern": "(a){60000}"}))
    with pytest.raises(UserError, match=r"pipeline\.json: candidates_pattern=\(a\)\{60000\} could take very long"):
        TextPipeline.load(tmp_path)
