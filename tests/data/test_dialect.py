import gzip

import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.dialect import FileFormat, dialect_of
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
    table, guesses = read(path, FileFormat(separator="#", encoding="cp1250", decimal="."))
    assert table[0] == {"text": "schön, gut; fein", "stars": "4,5"}
    assert guesses == []


def test_a_file_in_another_encoding_than_the_given_one_is_named(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_bytes("text#stars\nschön, gut; fein#4,5\n".encode("cp1250"))
    with pytest.raises(UserError, match=r"odd\.csv is not in ascii .*: give data\.encoding"):
        read(path, FileFormat(encoding="ascii"))


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
        FileFormat(**setting)


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
    dialect = dialect_of(tmp_path / "rows.csv", content, ",;", FileFormat())
    assert dialect.encoding == "cp1252"


def test_one_damaged_row_does_not_hide_the_separator(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text;label\n" + "a, b;1\n" * 30 + "x;y;z\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"rows\.csv cannot be read: line 32 .*saw 3"):
        read(path)


def test_utf8_with_a_stray_byte_is_refused_with_its_line(tmp_path):
    lines = [f"ein schöner Film über Käse {number},{number % 2}" for number in range(50)]
    content = "\n".join(["text,label", *lines, ""]).encode()
    path = tmp_path / "rows.csv"
    path.write_bytes(content.replace(b" 17,", b" caf\xe9 17,"))
    with pytest.raises(
        UserError, match=r"UTF-8 but for 1 of its lines, line 19 .*caf\\xe9.*data\.encoding=…"
    ):
        read(path)
    table, _ = read(path, FileFormat(encoding="cp1252"))
    assert len(table) == 50


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_its_mark_is_guessed_and_told(tmp_path, encoding):
    path = tmp_path / "rows.csv"
    path.write_bytes(
        "".join(f"{text}\n" for text in ["text,label", "schön,1", "übel,0"]).encode(encoding)
    )
    table, guesses = read(path)
    assert table["text"][:] == ["schön", "übel"]
    assert guesses == [f"rows.csv: read as {encoding} (a guess; data.encoding=… says otherwise)"]


@pytest.mark.parametrize("content", [b"\0", b"\0a", b"\0" * 5])
def test_a_file_of_nul_bytes_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"rows\.csv (is not in utf-16|has no row)"):
        read(path)


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_headers_of_files_that_were_put_together_are_no_rows(tmp_path, mark):
    part = mark + b"text,label\na film,1\nno film,0\n"
    path = tmp_path / "rows.csv"
    path.write_bytes(part + part + part)
    table, guesses = read(path)
    assert table["label"][:] == ["1", "0"] * 3
    assert guesses == [
        "rows.csv: rows that repeat the header: 2 (line 4 is the first); they are left out"
    ]


def test_a_text_that_is_its_columns_name_is_a_text(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"text,label\ntext,1\nother,0\n")
    assert read(path)[0]["text"][:] == ["text", "other"]


def test_two_columns_of_one_name_are_told_where_they_are_asked_for(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"text,label,text\na,1,b\n")
    guesses = []
    table = read_file(path, None, guesses.append, ["text", "label"])
    assert table["text"][:] == ["a"]
    assert guesses == ["rows.csv: of 2 columns text the first is read"]
