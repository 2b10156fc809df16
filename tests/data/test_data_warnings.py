from itertools import product

import numpy as np
import pandas as pd
import pytest

from attnprobe.data.data_warnings import LEAKED, tell_section
from attnprobe.data.prepare import prepare
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import FileSource, TestbedSource

BEGINNINGS = ("ba", "co", "du", "fi", "gel")
ENDS = ("mo", "na", "per", "qui", "ros", "tan", "vel", "wix")
WORDS = [beginning + end for beginning, end in product(BEGINNINGS, ENDS)]


def texts(count, seed=0, length=12):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, length)) for _ in range(count)]


def checked(tmp_path, frame, **settings):
    """The checks of a file with these rows, by their names."""
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    prepared = prepare(DataSettings(**settings), FileSource(path).load())
    checks = {}
    for check in prepared.checks:
        checks.setdefault(check.name, check)
    return checks


def warned(checks):
    return sorted(name for name, check in checks.items() if check.warns)


def clean(count=1000, seed=0):
    return pd.DataFrame({"text": texts(count, seed), "label": ["good", "bad"] * (count // 2)})


def test_a_clean_file_warns_of_nothing(tmp_path):
    checks = checked(tmp_path, clean())
    assert warned(checks) == []
    assert checks["rows"].sentence == "1,000 rows: 680 to train, 120 to validate, 200 to test"
    assert checks["classes"].sentence == "2 classes: bad 50 %, good 50 %"
    assert checks["length"].sentence == "the median text has 12 words (shortest 12, longest 12)"


def assert_nothing_about_training(checks):
    for check in checks.values():
        if check.name != "rows":
            for word in ("train", "learn", "remember", "test_share"):
                assert word not in check.sentence


def test_repeated_texts_without_training(tmp_path):
    frame = clean(300)
    frame.loc[:2, "label"] = "rare"
    repeated = frame[:50]
    contradicting = frame[:20].assign(label="bad")
    frame = pd.concat([frame, repeated, contradicting])
    checks = checked(tmp_path, frame, test_share=1.0)
    assert checks["rows"].sentence == "370 rows to test, none to train"
    assert warned(checks) == ["contradicting labels", "repeated texts"]
    assert checks["repeated texts"].value == 70 / 370
    assert_nothing_about_training(checks)


def test_few_and_rare_rows_without_training(tmp_path):
    frame = clean(60).assign(label=["rare"] * 3 + ["good"] * 57)
    checks = checked(tmp_path, frame, test_share=1.0)
    assert warned(checks) == ["largest class", "rare classes", "test rows"]
    assert_nothing_about_training(checks)


def test_the_share_of_leaked_texts_is_exact(tmp_path):
    train = clean(400)
    test = clean(200, seed=1)
    test.loc[:49, "text"] = train["text"][:50]
    test.loc[50:79, "text"] = train["text"][50:80] + " indeed"
    (tmp_path / "data").mkdir()
    train.to_csv(tmp_path / "data" / "train.csv", index=False)
    test.to_csv(tmp_path / "data" / "test.csv", index=False)
    settings = DataSettings(validation_share=0.01)
    prepared = prepare(settings, FileSource(tmp_path / "data").load())
    checks = {check.name: check for check in prepared.checks}

    training_texts = set(train["text"].iloc[prepared.splits["train"].example_id])
    leaked = test["text"].isin(training_texts).mean()
    assert checks["texts in training and test"].value == leaked > LEAKED
    originals = train["text"][50:80]
    near = originals.isin(training_texts).sum()
    assert checks["near copies in training and test"].value == near / 200


def test_where_a_sample_was_asked_for_the_remedy_is_a_larger_one(tmp_path):
    assert warned(checked(tmp_path, clean())) == []
    checks = checked(tmp_path, clean(), most={"train": 45, "test": 8})
    assert warned(checks) == ["rare classes", "test rows", "training rows"]
    raise_it = "raise it, or study.minutes, by which an audit sets it"
    larger_training = f"; data.most left out 635 training rows: {raise_it}"
    assert checks["training rows"].sentence.endswith(larger_training)
    larger_test = f"; data.most left out 192 test rows: {raise_it}"
    assert checks["test rows"].sentence.endswith(larger_test)
    assert checks["rare classes"].sentence.endswith(larger_training)


def test_a_small_file_has_no_larger_sample_to_give(tmp_path):
    sentence = checked(tmp_path, clean(60))["training rows"].sentence
    assert sentence.endswith("give more rows, or a smaller data.test_share")


def test_a_share_is_no_remedy_where_test_rows_have_a_file_of_their_own(tmp_path):
    paths = {split: str(tmp_path / f"{split}.csv") for split in ("train", "test")}
    for seed, path in enumerate(paths.values()):
        clean(60, seed).to_csv(path, index=False)
    prepared = prepare(DataSettings(), FileSource(paths).load())
    sentences = {check.name: check.sentence for check in prepared.checks}
    assert sentences["training rows"].endswith("explaining; give more rows")
    assert sentences["test rows"].endswith("points; give more rows")


SECOND_LABELS = clean(50).assign(label=["bad", "good"] * 25)
WITH_TWO_LABELS = pd.concat([clean(400), SECOND_LABELS])
RARE_CLASS = ["rare" if n % 33 == 0 else "common" for n in range(1000)]
CLASS_OF_THREE_ROWS = np.array([0, 1] * 500, object)
CLASS_OF_THREE_ROWS[[10, 400, 800]] = "n/a yet"
TWO_SPELLINGS = ["Good" if n % 4 == 0 else ("good", "bad")[n % 2] for n in range(1000)]
EMPTY_CELLS = texts(1000)
EMPTY_CELLS[100:200] = [None] * 100
CHINESE = ["我们再也不会来了位置偏僻", "房间很干净服务也好", "早餐一般价格太高"]
IN_CHINESE = [f"{CHINESE[n % 3]}{n}" for n in range(600)]
NUMBERS = [f"{n} {7 * n} {n % 5} {n}" for n in range(600)]
FAULTS = {
    "repeated texts": (pd.concat([clean(600)] * 3), "they count several times"),
    "texts in training and test": (
        pd.concat([clean(600)] * 3),
        "or keep them together with data.group=COLUMN",
    ),
    "contradicting labels": (WITH_TWO_LABELS, "no model can get both right"),
    "largest class": (
        clean().assign(label=RARE_CLASS),
        "97 % of the training rows are 'common': always guessing it is right",
    ),
    "rare classes": (clean().assign(label=CLASS_OF_THREE_ROWS), "'n/a yet' ("),
    "classes spelt alike": (
        clean().assign(label=TWO_SPELLINGS),
        "differ in spelling alone: 'Good' and 'good': they count as different",
    ),
    "empty cells": (
        clean().assign(text=EMPTY_CELLS),
        "100 of 1,000 rows have no text or no label (text is null: 100)",
    ),
    "training rows": (clean(60), "40 training rows"),
    "test rows": (clean(60), "12 test rows: an accuracy near 50 % is known only to ± 28 points"),
    "script": (
        pd.DataFrame({"text": IN_CHINESE, "label": [0, 1] * 300}),
        "set data.language=zh",
    ),
    "non-text": (
        pd.DataFrame({"text": NUMBERS, "label": [0, 1] * 300}),
        "is data.text the right column?",
    ),
    "HTML": (
        clean().assign(text=[f"<br /> {text}" for text in texts(1000)]),
        "data.clean=[html] removes them",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_is_warned_of(tmp_path, name):
    frame, sentence = FAULTS[name]
    checks = checked(tmp_path, frame)
    assert name in warned(checks)
    assert sentence in checks[name].sentence


@pytest.mark.parametrize("spelling", ["VERY GOOD", "very  good", "ｖｅｒｙ ｇｏｏｄ"])
def test_case_spaces_and_wide_letters_make_no_other_word_of_a_class(tmp_path, spelling):
    frame = clean().replace("good", "very good")
    frame.loc[:99, "label"] = spelling
    check = checked(tmp_path, frame)["classes spelt alike"]
    assert check.value == 1


def test_classes_of_almost_the_same_letters_are_different(tmp_path):
    frame = clean()
    frame.loc[:99, "label"] = "goods"
    check = checked(tmp_path, frame)["classes spelt alike"]
    assert check.value == 0
    assert check.sentence == "classes that differ in spelling alone: none"


def test_many_cut_texts_are_warned_of(tmp_path):
    check = checked(tmp_path, clean(), max_tokens=5)["cut texts"]
    assert (check.value, check.warns) == (1, True)


def test_of_many_classes_not_all_are_named(tmp_path):
    frame = clean().assign(label=[f"c{n % 20}" for n in range(1000)])
    sentence = checked(tmp_path, frame)["classes"].sentence
    assert sentence.startswith("20 classes: ")
    assert sentence.endswith(" and 12 more")


def test_a_single_cut_text_is_counted_without_a_warning(tmp_path):
    frame = clean()
    frame.loc[7, "text"] = " ".join(["word"] * 90)
    checks = checked(tmp_path, frame, max_tokens=50)
    assert not checks["cut texts"].warns
    assert checks["length"].sentence.endswith("; 1 text cut at data.max_tokens)")


def test_a_line_is_printed_once_and_holds_no_control_character(capsys):
    check = {
        "name": "rows",
        "value": 3,
        "threshold": None,
        "warns": False,
        "sentence": "3 rows\x1b[2J",
    }
    for _ in range(2):
        tell_section("once", {"notes": [], "checks": [check]})
    assert capsys.readouterr().out == "data once: 3 rows\\x1b[2J\n"


def test_rows_of_several_labels_have_no_largest_class(tmp_path):
    frame = clean()
    frame["label"] = ["good;bad" if n % 3 else "bad" for n in range(1000)]
    assert "largest class" not in checked(tmp_path, frame, multi_label=True)


def test_a_text_with_several_questions_is_no_near_copy():
    settings = DataSettings(text="document", question="question")
    prepared = prepare(settings, TestbedSource("stories", 200, 40, 40).load())
    names = {check.name for check in prepared.checks}
    assert "near copies in training and test" not in names
