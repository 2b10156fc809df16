import gzip

import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.dialect import Reading, dialect_of
from attnprobe.data.local_files import read_file

GERMAN = [
    "Größe und Lage schön; Frühstück übel",
    "für mich, alles in allem, in Ordnung",
    'er sagte "nie wieder"',
]
TEXTS = {
    "cp1252": GERMAN,
    "cp1251": [
        "Очень хороший отель, рекомендую всем",
        "плохо, больше не приедем",
        "завтрак был холодным",
    ],
    "gb18030": ["我们再也不会来了，位置偏僻交通不便", "房间很干净，服务也好", "早餐一般"],
    "cp932": ["とても美味しかったです。駅から近い", "部屋が狭くて残念でした", "また来たいです"],
    "utf-16": GERMAN,
    "utf-8-sig": GERMAN,
    "utf-8": GERMAN,
}


def read(path, how=None):
    """The rows of a file, and the guesses that were told."""
    guesses = []
    return read_file(path, how, guesses.append), guesses


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separator_and_encoding_are_guessed_and_told(tmp_path, encoding, separator):
    texts = TEXTS[encoding] * 4
    stars = ["4,5", "1,0", "3"] * 4
    frame = pd.DataFrame({"text": texts, "stars": stars})
    path = tmp_path / "reviews.csv"
    path.write_bytes(frame.to_csv(index=False, sep=separator).encode(encoding))
    table, guesses = read(path)

    has_decimal_commas = separator != ","
    if has_decimal_commas:
        stars = [number.replace(",", ".") for number in stars]
    assert table["text"][:] == texts
    assert table["stars"][:] == stars
    note = " ".join(guesses)
    assert ("separated by" in note) == (separator != ",")
    assert ("not UTF-8; read as" in note) == (not encoding.startswith("utf"))
    assert ("decimal commas in stars" in note) == has_decimal_commas


def test_what_is_given_is_not_guessed(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_bytes("text#stars\nschön, gut; fein#4,5\n".encode("cp1250"))
    table, guesses = read(path, Reading(separator="#", encoding="cp1250", decimal="."))
    assert table[0] == {"text": "schön, gut; fein", "stars": "4,5"}
    assert guesses == []


def test_a_file_in_another_encoding_than_the_given_one_is_named(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_bytes("text#stars\nschön, gut; fein#4,5\n".encode("cp1250"))
    with pytest.raises(UserError, match=r"odd\.csv is not in ascii .*: give data\.encoding"):
        read(path, Reading(encoding="ascii"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"encoding": "cp9999"}, r"data\.encoding=cp9999: expected .*such as utf-8"),
        ({"separator": "ab"}, r"data\.separator=ab: expected one ASCII character"),
        ({"decimal": ";"}, r"data\.decimal=;: expected"),
    ],
)
def test_a_dialect_that_does_not_exist_is_refused(setting, message):
    with pytest.raises(UserError, match=message):
        Reading(**setting)


def test_points_between_thousands_are_no_decimals(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text;price;label\n1,5 is fine;1.234,50;1\nso so;7;0\n", encoding="utf-8")
    table, _ = read(path)
    assert table["price"][:] == ["1234.50", "7"]
    assert table["text"][:] == ["1,5 is fine", "so so"]


def test_excels_line_about_the_separator_is_read_in_a_packed_file(tmp_path):
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b'sep=;\ntext;label\n"a; b";1\nc;0\n', mtime=0))
    table, _ = read(path)
    assert table["text"][:] == ["a; b", "c"]


def test_a_late_byte_shows_the_encoding(tmp_path):
    content = b"text,label\n" + b"plain,1\n" * 20_000 + "für,0\n".encode("cp1252")
    dialect = dialect_of(tmp_path / "rows.csv", content, ",;", Reading())
    assert dialect.encoding == "cp1252"


def test_one_damaged_row_does_not_hide_the_separator(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text;label\n" + "a, b;1\n" * 30 + "x;y;z\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"rows\.csv cannot be read: line 32 .*saw 3"):
        read(path)
