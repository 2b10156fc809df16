import datasets
import pytest

from attnprobe import UserError
from attnprobe.data.labels import LabelSource
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import Source
from attnprobe.data.text import TextRules

TEXTS = [
    ("one", ["a", "b"]),
    ("two", []),
    ("three", ["c"]),
    ("four", ["a", "d", "e"]),
]


class Rows(Source):
    """Rows of a test."""

    def __init__(self, **splits):
        self.splits = splits

    def load(self):
        tables = {}
        for split, rows in self.splits.items():
            texts, labels = zip(*rows, strict=True)
            columns = {
                "text": list(texts),
                "labels": list(labels),
                "note": list(texts),
            }
            tables[split] = datasets.Dataset.from_dict(columns)
        return tables


def asked(table):
    """Text → label → answer."""
    answers = {}
    for row in table:
        answers.setdefault(row["text"], {})[row["asked_label"]] = row["has_label"]
    return answers


def test_without_a_limit_every_text_is_asked_for_every_label():
    table = LabelSource(Rows(train=TEXTS), others=None).load()["train"]
    assert len(table) == 4 * 5
    for text, labels in TEXTS:
        expected = {name: "yes" if name in labels else "no" for name in "abcde"}
        assert asked(table)[text] == expected
    assert set(table["note"]) == {text for text, _ in TEXTS}  # other columns stay


@pytest.mark.parametrize("others", [0, 1, 2, 9])
def test_all_labels_of_a_text_and_so_many_others_are_asked_for_once(others):
    table = LabelSource(Rows(train=TEXTS), others=others).load()["train"]
    for text, labels in TEXTS:
        answers = asked(table).get(text, {})
        answered_yes = {name for name, answer in answers.items() if answer == "yes"}
        answered_no = set(answers) - answered_yes
        assert answered_yes == set(labels)
        assert len(answered_no) == min(others, 5 - len(labels))
    questions = list(zip(table["text"], table["asked_label"], strict=True))
    assert len(set(questions)) == len(questions)


def test_what_is_drawn_belongs_to_the_seed():
    many = [(str(number), ["a"]) for number in range(50)] + TEXTS
    questions = []
    for seed in (0, 0, 1):
        source = LabelSource(Rows(train=many), others=1, seed=seed)
        questions.append(list(source.load()["train"]["asked_label"]))
    assert questions[0] == questions[1]
    assert questions[0] != questions[2]
    drawn = {label for label in questions[0] if label != "a"}
    assert drawn == set("bcde")


def test_rows_of_one_text_share_a_number_that_no_other_text_has():
    splits = LabelSource(Rows(train=TEXTS, test=TEXTS), others=2).load()
    numbers = {}
    for split, table in splits.items():
        for row in table:
            place = (split, row["text"])
            numbers.setdefault(row["text_number"], set()).add(place)
    assert len(numbers) == 8
    assert all(len(texts) == 1 for texts in numbers.values())


def test_no_progress_bar_of_the_library_is_shown(capfd):
    table = LabelSource(Rows(train=TEXTS)).load()["train"]
    assert "Flattening" not in capfd.readouterr().err
    reordered = table.add_column("more", [0] * len(table)).select([1, 0])
    reordered.flatten_indices()
    assert "Flattening" in capfd.readouterr().err  # others' data sets show it as before


def test_labels_may_be_one_string():
    rows = [
        ("one", "a | b"),
        ("two", ""),
        ("three", "b"),
    ]
    table = LabelSource(Rows(train=rows), others=None).load()["train"]
    assert asked(table) == {
        "one": {"a": "yes", "b": "yes"},
        "two": {"a": "no", "b": "no"},
        "three": {"a": "no", "b": "yes"},
    }


def test_a_wrong_column_and_no_label_at_all_are_refused():
    with pytest.raises(
        UserError, match=r"data.source.column=codes: there is no such column.* text, labels"
    ):
        LabelSource(Rows(train=TEXTS), column="codes").load()
    with pytest.raises(UserError, match=r"expected a label in some row.*one_per_label="):
        LabelSource(Rows(train=[("one", "")])).load()
    with pytest.raises(UserError, match=r"column=labels and .*one_per_label=\['a'\]: expected one"):
        LabelSource(Rows(train=TEXTS), one_per_label=["a"])
    with pytest.raises(UserError, match="expected one of them, the other null"):
        LabelSource(Rows(train=TEXTS), column=None)


class Table(Rows):
    """Rows of these columns."""

    def load(self):
        return {split: datasets.Dataset.from_dict(rows) for split, rows in self.splits.items()}


@pytest.mark.parametrize(
    ("has", "has_not"),
    [
        (1, 0),
        ("1", "0"),
        (True, False),
        ("yes", None),
        ("TRUE", ""),
        (1.0, float("nan")),
    ],
)
def test_labels_may_have_a_column_each(has, has_not):
    columns = {
        "text": ["one", "two", "three"],
        "fever": [has, has_not, has],
        "dry cough": [has_not, has_not, has],
    }
    names = ["fever", "dry cough"]
    source = LabelSource(Table(train=columns), column=None, one_per_label=names, others=None)
    assert asked(source.load()["train"]) == {
        "one": {"fever": "yes", "dry cough": "no"},
        "two": {"fever": "no", "dry cough": "no"},
        "three": {"fever": "yes", "dry cough": "yes"},
    }


def test_a_label_that_no_text_has_is_named():
    columns = {"text": ["one", "two"], "fever": [1, 0], "cough": [0, 0]}
    names = ["fever", "cough"]
    source = LabelSource(Table(train=columns), column=None, one_per_label=names, others=None)
    texts = asked(source.load()["train"])
    assert texts == {"one": {"fever": "yes"}, "two": {"fever": "no"}}
    assert source.notes == ("no text has the label cough: it is not asked for",)


def test_a_cell_that_says_neither_yes_nor_no_is_refused():
    columns = {"text": ["one"], "a": ["b;c"]}
    source = LabelSource(Table(train=columns), column=None, one_per_label=["a"])
    with pytest.raises(UserError, match="column a has a cell 'b;c'; expected 1, true or yes"):
        source.load()


def test_only_the_columns_that_are_needed_are_asked_of_the_texts():
    source = LabelSource(Rows(train=TEXTS))
    source.columns = ["text", "asked_label", "has_label", "text_number"]
    source.load()
    assert source.texts.columns == ["text", "labels"]


def data_of(train, test=None, others=1, **settings):
    """A data set of these texts; test texts are drawn from the others where there are none."""
    splits = {"train": train} if test is None else {"train": train, "test": test}
    source = LabelSource(Rows(**splits), others=others)
    asking = {
        "question": "asked_label",
        "question_kind": "label",
        "label": "has_label",
        "labels": ["no", "yes"],
        "group": "text_number",
        "tokenizer": "whitespace",
    }
    return TextDataModule("notes", source, **asking | settings)


MANY = [(f"word{number} and more", [f"a label {number % 3}"]) for number in range(40)]


def test_rows_of_one_text_stay_in_one_split_and_share_a_number():
    data = data_of(MANY)
    data.setup()
    split_of_text = {}
    for split, part in data.splits.items():
        for row in range(len(part)):
            words = tuple(part.spelled(part.words[row]))
            place = (split, part.text_number[row])
            split_of_text.setdefault(words, set()).add(place)
    assert set(data.sizes) == {"train", "validation", "test"}
    assert len(split_of_text) == 40
    assert all(len(places) == 1 for places in split_of_text.values())


def test_a_text_is_tokenised_once_for_all_its_labels(monkeypatch):
    tokenised = []
    read = TextRules.read

    def counting(rules, text):
        tokenised.append(text)
        return read(rules, text)

    monkeypatch.setattr(TextRules, "read", counting)
    data = data_of(MANY, others=None)
    data.setup()
    assert sum(map(len, data.splits.values())) == 40 * 3
    assert sorted(tokenised) == sorted(text for text, _ in MANY)


def texts_of(part):
    """Text → the labels that it is asked for."""
    labels = {}
    for row, number in enumerate(part.example_id.tolist()):
        words = tuple(part.spelled(part.words[row]))
        labels.setdefault(words, []).append(part.question(number))
    return labels


def test_a_sample_tears_no_text_apart():
    everything = data_of(MANY, MANY)
    everything.setup()
    sample = data_of(MANY, MANY, most={"train": 21, "test": 9})
    sample.setup()
    for split, texts in (("train", 10), ("test", 4)):  # two rows each, and one row to spare
        drawn = texts_of(sample.splits[split])
        complete = texts_of(everything.splits[split])
        assert len(drawn) == texts
        assert all(labels == complete[text] for text, labels in drawn.items())
        left_out = everything.sizes[split] - sample.sizes[split]
        assert sample.counts[split]["dropped"]["over data.most"] == left_out
    another_sample = data_of(MANY, MANY, most={"train": 21, "test": 9}, split_seed=1)
    another_sample.setup()
    drawn = set(texts_of(sample.splits["test"]))
    assert set(texts_of(another_sample.splits["test"])) != drawn


def test_a_sample_smaller_than_a_text_is_refused():
    message = r"data\.most={test: 2}: .*up to 3 rows: expected data\.most={test: 3} or more"
    with pytest.raises(UserError, match=message):
        data_of(MANY, MANY, None, most={"test": 2}).setup()
    data = data_of(MANY, MANY, None, most={"test": 3})
    data.setup()
    assert len(texts_of(data.splits["test"])) == 1


def test_a_label_is_one_word_whatever_its_name_consists_of():
    data = data_of(MANY)
    data.setup()
    part = data.splits["train"]
    assert {tuple(part.question(number)) for number in part.example_id.tolist()} == {
        (f"a label {number}",) for number in range(3)
    }
    batch = data.pipeline.batch_of(["word1 and more"], ["a label 2"])
    assert data.vocabulary.decode(batch.question[0].tolist()) == ["<SOS>", "a label 2", "<EOS>"]
    with pytest.raises(UserError, match=r"question 0 \('a label'\): no such label"):
        data.pipeline.batch_of(["word1 and more"], ["a label"])


def test_labels_that_the_vocabulary_lacks_and_a_missing_group_are_refused():
    with pytest.raises(UserError, match=r"ask too rarely for a label 0, a label 1.*lower data.min"):
        data_of(MANY, min_df=39).setup()
    with pytest.raises(UserError, match=r"data.question_kind=label: .*expected data.group=COLUMN"):
        data_of(MANY, group=None)
