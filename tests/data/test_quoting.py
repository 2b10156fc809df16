"""Reports of rows that were swallowed and texts that were changed, and siblings of each kind."""

import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.dialect import FileFormat
from attnprobe.data.local_files import read_file

ROWS = [
    (f"a film was {word} and long", label) for word, label in [("good", "1"), ("bad", "0")] * 60
]


def read(path, how=None):
    """The rows of a file as pairs, and the guesses that were told."""
    guesses = []
    table = read_file(path, how, guesses.append)
    return list(zip(table["text"][:], table["label"][:], strict=True)), guesses


def write(path, rows, separator="\t"):
    lines = [separator.join(row) for row in [("text", "label"), *rows]]
    path.write_bytes(("\n".join(lines) + "\n").encode())
    return path


def with_texts(texts):
    """The rows with other texts in some places."""
    rows = list(ROWS)
    for place, text in texts.items():
        rows[place] = (text, rows[place][1])
    return rows


LONE_MARKS = {
    # pandas-dev/pandas#21695: 40 of 120 rows lay within one text
    "two that begin texts": {20: '"a film was bad and the', 60: '"the film was good and a'},
    "one": {20: '"a film was bad and the'},
    # siblings: the second mark ends a text, so that nothing looks malformed
    "one that begins and one that ends": {20: '"a film was', 60: 'was good"'},
    "in two neighbours": {20: '"a film was', 21: 'was good"'},
    "inches and whole quotations": {3: 'a 5" pipe', 4: '"Good."', 119: '"'},
    "one in the last row": {119: '"the film was bad'},
    "the first row's and the last row's": {0: '"a film', 119: 'the end"'},
}


@pytest.mark.parametrize("name", LONE_MARKS)
def test_a_mark_in_a_tsv_without_quoting_swallows_no_row(tmp_path, name):
    written = with_texts(LONE_MARKS[name])
    rows, guesses = read(write(tmp_path / "rows.tsv", written))
    assert rows == written
    assert guesses == [
        "rows.tsv: quotation marks are part of the texts (a guess; data.quoting=… says otherwise)"
    ]


def test_a_mark_in_a_csv_without_quoting_swallows_no_row(tmp_path):
    written = with_texts({20: '"a film was', 60: 'was good"'})
    rows, guesses = read(write(tmp_path / "rows.csv", written, ","))
    assert rows == written
    assert "quotation marks are part of the texts" in guesses[0]


def test_a_mark_in_a_column_that_nobody_asks_for_swallows_no_row(tmp_path):
    lines = ["note\ttext\tlabel"]
    notes = {20: '"seen twice', 60: 'checked"'}
    for number, row in enumerate(ROWS):
        lines.append("\t".join((notes.get(number, ""), *row)))
    (tmp_path / "rows.tsv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    table = read_file(tmp_path / "rows.tsv", columns=["text", "label"])
    assert list(zip(table["text"][:], table["label"][:], strict=True)) == ROWS


def test_line_ends_within_cells_are_counted_and_said(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b'text,label\n"Dear all,\nit broke.\n\nBye",1\nfine,0\n"two\r\nlines",1\n')
    rows, guesses = read(path)
    assert rows == [("Dear all,\nit broke.\n\nBye", "1"), ("fine", "0"), ("two\r\nlines", "1")]
    assert guesses == ["rows.csv: 3 rows from 7 lines: 4 line ends are within cells"]


@pytest.mark.parametrize(
    "quotation",
    [
        "fine",
        "fine, really",  # pandas-dev/pandas#21862: with a comma the row had too many cells
        "fine\nreally",  # siblings: with a line end, and with a backslash of the text's own
        "C:\\fine",
    ],
)
def test_a_mark_that_a_backslash_escapes_is_a_mark(tmp_path, quotation):
    texts = [f'he said "{quotation}" of the {text}' for text, _ in ROWS]
    lines = ["text,label"]
    for text, (_, label) in zip(texts, ROWS, strict=True):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'"{escaped}",{label}')
    (tmp_path / "rows.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    rows, guesses = read(tmp_path / "rows.csv")
    assert [text for text, _ in rows] == texts
    assert r"\" stands for one within them (a guess; data.quoting=…" in guesses[0]


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("text", ['he said "fine"', '"fine" it is', '"', 'half \\ and "half"'])
def test_an_escaped_mark_at_the_edge_of_a_cell_ends_no_cell(tmp_path, text, separator):
    # siblings of pandas-dev/pandas#16682, as MySQL's ENCLOSED BY '"' writes them
    written = with_texts(dict.fromkeys(range(0, 120, 7), text))
    lines = [f'"text"{separator}"label"']
    for cells in written:
        escaped = [cell.replace("\\", "\\\\").replace('"', '\\"') for cell in cells]
        lines.append(separator.join(f'"{cell}"' for cell in escaped))
    (tmp_path / "rows.csv").write_text("\n".join([*lines, ""]), encoding="utf-8")
    rows, guesses = read(tmp_path / "rows.csv")
    assert rows == written
    assert any(r"\" stands for one within them" in guess for guess in guesses)


def test_a_backslash_before_the_end_of_a_cell_is_text_where_marks_are_doubled(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('text,label\n"in C:\\, or ""so""",1\n"at D:\\",0\n', encoding="utf-8")
    rows, guesses = read(path)
    assert rows == [('in C:\\, or "so"', "1"), ("at D:\\", "0")]
    assert guesses == []


@pytest.mark.parametrize("text", [r"C:\new\table", r"\alpha and \\ in LaTeX", r"a \n of two"])
def test_backslashes_that_nothing_shows_to_be_escapes_are_text(tmp_path, text):
    written = with_texts({5: text})
    rows, _ = read(write(tmp_path / "rows.tsv", written))
    assert rows == written


@pytest.mark.parametrize(
    ("quoting", "text"),
    [
        ("doubled", r"say \"so\""),
        ("backslash", 'say "so"'),
        ("none", r'"say \"so\""'),
        ("escapes", '"say "so""'),
    ],
)
def test_a_quoting_that_is_given_is_taken(tmp_path, quoting, text):
    content = '"say \\"so\\""' if quoting != "doubled" else '"say \\""so\\"""'
    path = write(tmp_path / "rows.tsv", [(content, "1")])
    rows, guesses = read(path, FileFormat(quoting=quoting))
    assert rows == [(text, "1")]
    assert guesses == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            'text,label\na,1\n"b, c,0\nd,1\n',
            r"line 3 begins a cell with a quotation mark, and none",
        ),
        (
            'text,label\n"a, b",1\n"b" c, d,0\n',
            "line 3 ends a cell with a quotation mark, and more",
        ),
        ('text,label\n"a\nb, c",1\nd,1,2\n', "line 4 has more cells than the header line"),
    ],
)
def test_a_row_that_fits_no_quoting_is_named_with_its_line(tmp_path, content, message):
    (tmp_path / "rows.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=rf"{message}.*data\.quoting=.*data\.separator="):
        read_file(tmp_path / "rows.csv")


def test_cells_that_a_row_lacks_are_missing_and_said(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,label,note\na,1,x\nb,0\nc,1,\nd,1,,\n", encoding="utf-8")
    guesses = []
    table = read_file(path, None, guesses.append)
    assert table["note"][:] == ["x", None, None, None]
    assert guesses == [
        "rows.csv: rows with fewer cells than the header: 1 (line 3 is the first); what they lack "
        "is empty"
    ]


def test_columns_of_one_name_and_of_none_can_be_told_apart(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text,text,,label\na,b,c,1\n", encoding="utf-8")
    assert read_file(path).column_names == ["text", "text.1", "Unnamed: 2", "label"]
