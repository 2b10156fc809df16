import os
import subprocess
import sys

import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.text import TextRules, blank, language_tokens, split_sentences

EMOJI = ["👨‍👩‍👧‍👦", "❤️", "👍🏽", "🇩🇪", "🇫🇷", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
"""A family (joined), a heart (with its variation mark), a skin tone, two flags, a keycap, a flag of
tags."""


@pytest.mark.parametrize("emoji", EMOJI)
def test_what_is_one_character_to_a_reader_is_one_token(emoji):
    assert language_tokens(f"fine {emoji} film", "en") == ["fine", emoji, "film"]


# a digit, and so the keycap, goes with the letters before it
@pytest.mark.parametrize("emoji", [emoji for emoji in EMOJI if not emoji[0].isdecimal()])
def test_an_emoji_is_a_token_of_its_own_without_spaces(emoji):
    assert emoji in language_tokens(f"fine film{emoji}!!", "en")


def test_tokens_joined_are_the_text_again():
    text = "Don’t go: 10 % of “naïve” cafe\u0301s 👨‍👩‍👧‍👦!! cost 5€."
    assert "".join(language_tokens(text, "en")) == text.replace(" ", "")


def test_english_contractions_and_brackets_are_split():
    tokens = language_tokens("Don't go (really)!", "en")
    assert tokens == ["Do", "n't", "go", "(", "really", ")", "!"]


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        (
            "zh",
            "我们再也不会来了，位置偏僻",
            ["我们", "再也不会", "来", "了", "，", "位置", "偏僻"],
        ),
        ("ja", "部屋が狭くて残念でした", ["部屋", "が", "狭く", "て", "残念", "でし", "た"]),
        ("ar", "الخدمة ممتازة، والطعام لذيذ!", ["الخدمة", "ممتازة", "،", "والطعام", "لذيذ", "!"]),
        ("de", "Das war z.B. gut", ["Das", "war", "z.B.", "gut"]),
        ("zh", "iPhone 很好", ["iPhone", "很", "好"]),
    ],
)
def test_each_language_is_split_by_its_own_rules(language, text, words):
    for library in {"zh": ["jieba"], "ja": ["sudachipy", "sudachidict_core"]}.get(language, []):
        pytest.importorskip(library, reason="needs attnprobe[languages]")
    assert TextRules(language=language).words(text) == [word.lower() for word in words]


def test_chinese_sentences_end_with_chinese_marks():
    pytest.importorskip("jieba", reason="needs attnprobe[languages]")
    assert split_sentences("房间很干净。服务也好！", "zh") == ["房间很干净。", "服务也好！"]


def test_an_unknown_language_is_refused_at_once():
    with pytest.raises(
        UserError, match=r"=klingon: spaCy has no such language; expected a code such as en"
    ):
        TextRules(language="klingon")


def test_text_that_is_split_at_spaces_may_be_of_any_language():
    assert TextRules(language="klingon", tokenizer="whitespace").words("a b") == ["a", "b"]


def test_a_missing_library_is_named_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "jieba", None)
    blank.cache_clear()
    with pytest.raises(
        UserError, match=r"data\.language=zh needs pip install 'attnprobe\[languages\]'"
    ):
        TextRules(language="zh")
    with pytest.raises(
        UserError,
        match=r"data\.language=th needs a library .*PyThaiNLP.*data\.tokenizer=whitespace",
    ):
        TextRules(language="th")


def test_no_cache_from_the_shared_folder_is_loaded(tmp_path):
    """jieba would unmarshal `jieba.cache` from there, whoever wrote it."""
    pytest.importorskip("jieba", reason="needs attnprobe[languages]")
    (tmp_path / "jieba.cache").write_bytes(b"not a cache")
    code = (
        "from attnprobe.data.text import language_tokens; print(language_tokens('我们来了', 'zh'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "jieba.cache").read_bytes() == b"not a cache"
    assert [path.name for path in tmp_path.iterdir()] == ["jieba.cache"]
