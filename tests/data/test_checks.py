import numpy as np
import pandas as pd
import pytest

from attnprobe.data.data_warnings import LEAKED, tell_section
from attnprobe.data.prepare import prepare
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import FileSource, TestbedSource

WORDS = [
    f"{a}{b}"
    for a in ("ba", "co", "du", "fi", "gel")
    for b in ("mo", "na", "per", "qui", "ros", "tan", "vel", "wix")
]


def texts(count, seed=0, length=12):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, length)) for _ in range(count)]


def checked(tmp_path, frame, name="rows.csv", **settings):
    path = tmp_path / name
    frame.to_csv(path, index=False)
    prepared = prepare(DataSettings(**settings), FileSource(path).load())
    found = {}
    for check in prepared.checks:
        found.setdefault(check.name, check)
    return found


def warned(found):
    return sorted(name for name, check in found.items() if check.warns)


def clean(count=1000, seed=0):
    return pd.DataFrame({"text": texts(count, seed), "label": ["good", "bad"] * (count // 2)})


def test_a_clean_file_warns_of_nothing(tmp_path):
    found = checked(tmp_path, clean())
    assert warned(found) == []
    assert found["rows"].sentence == "1,000 rows: 680 to train, 120 to validate, 200 to test"
    assert found["classes"].sentence == "2 classes: bad 50 %, good 50 %"
    assert found["length"].sentence == "the median text has 12 words (shortest 12, longest 12)"


def test_nothing_speaks_of_training_where_nothing_is_trained(tmp_path):
    frame = clean(300)
    frame.loc[:2, "label"] = "rare"
    frame = pd.concat([frame, frame[:50], frame[:20].assign(label="bad")])
    found = checked(tmp_path, frame, test_share=1.0)
    assert found["rows"].sentence == "370 rows to test, none to train"
    assert warned(found) == ["contradicting labels", "repeated texts"]
    assert found["repeated texts"].value == 70 / 370
    alone = checked(tmp_path, clean(60).assign(label=["rare"] * 3 + ["good"] * 57), test_share=1.0)
    assert warned(alone) == ["largest class", "rare classes", "test rows"]
    for sentence in (
        check.sentence for check in (*found.values(), *alone.values()) if check.name != "rows"
    ):
        assert not any(word in sentence for word in ("train", "learn", "remember", "test_share"))


def test_the_share_of_leaked_texts_is_exact(tmp_path):
    train = clean(400)
    test = clean(200, seed=1)
    test.loc[:49, "text"] = train["text"][:50].to_numpy()
    test.loc[50:79, "text"] = [f"{text} indeed" for text in train["text"][50:80]]
    (tmp_path / "data").mkdir()
    train.to_csv(tmp_path / "data" / "train.csv", index=False)
    test.to_csv(tmp_path / "data" / "test.csv", index=False)
    settings = DataSettings(validation_share=0.01)
    prepared = prepare(settings, FileSource(tmp_path / "data").load())
    found = {check.name: check for check in prepared.checks}
    kept = set(train["text"].iloc[prepared.splits["train"].example_id])
    assert found["texts in training and test"].value == test["text"].isin(kept).mean() > LEAKED
    near = sum(text.removesuffix(" indeed") in kept for text in test["text"][50:80])
    assert found["near copies in training and test"].value == near / 200


def test_where_a_sample_was_asked_for_a_larger_one_is_what_to_do(tmp_path):
    assert warned(checked(tmp_path, clean())) == []
    found = checked(tmp_path, clean(), most={"train": 45, "test": 8})
    assert warned(found) == ["rare classes", "test rows", "training rows"]
    assert found["training rows"].sentence.endswith(
        "; data.most left out 635 training rows: raise it"
    )
    assert found["test rows"].sentence.endswith("; data.most left out 192 test rows: raise it")
    assert found["rare classes"].sentence.endswith(
        "; data.most left out 635 training rows: raise it"
    )
    # a small file has no more to give
    small = checked(tmp_path, clean(60))["training rows"].sentence
    assert small.endswith("give more rows, or a smaller data.test_share")


OF_TWO_LABELS = pd.concat([clean(400), clean(50).assign(label=["bad", "good"] * 25)])
CHINESE = ["我们再也不会来了位置偏僻", "房间很干净服务也好", "早餐一般价格太高"]
FAULTS = {
    "repeated texts": (pd.concat([clean(600)] * 3), "they count several times"),
    "texts in training and test": (
        pd.concat([clean(600)] * 3),
        "or keep them together with data.group=COLUMN",
    ),
    "contradicting labels": (OF_TWO_LABELS, "no model can get both right"),
    "largest class": (
        clean().assign(label=["rare" if n % 33 == 0 else "common" for n in range(1000)]),
        "97 % of the training rows are 'common': always guessing it is right",
    ),
    "rare classes": (
        clean().assign(label=["n/a yet" if n in (10, 400, 800) else n % 2 for n in range(1000)]),
        "'n/a yet' (",
    ),
    "empty cells": (
        clean().assign(
            text=[None if 100 <= n < 200 else text for n, text in enumerate(texts(1000))]
        ),
        "100 of 1,000 rows have no text or no label (text is null: 100)",
    ),
    "training rows": (clean(60), "40 training rows"),
    "test rows": (clean(60), "12 test rows: an accuracy near 50 % is known only to ± 28 points"),
    "script": (
        pd.DataFrame({"text": [f"{CHINESE[n % 3]}{n}" for n in range(600)], "label": [0, 1] * 300}),
        "set data.language=zh",
    ),
    "non-text": (
        pd.DataFrame(
            {"text": [f"{n} {7 * n} {n % 5} {n}" for n in range(600)], "label": [0, 1] * 300}
        ),
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
    found = checked(tmp_path, frame)
    assert name in warned(found)
    assert sentence in found[name].sentence


def test_cut_texts_are_counted_and_many_classes_not_all_named(tmp_path):
    found = checked(
        tmp_path, clean().assign(label=[f"c{n % 20}" for n in range(1000)]), max_tokens=5
    )
    assert (found["cut texts"].value, found["cut texts"].warns) == (1, True)
    assert found["classes"].sentence.startswith("20 classes: ")
    assert found["classes"].sentence.endswith(" and 12 more")
    frame = clean()
    frame.loc[7, "text"] = " ".join(["word"] * 90)
    found = checked(tmp_path, frame, max_tokens=50)
    assert not found["cut texts"].warns
    assert found["length"].sentence.endswith("; 1 text cut at data.max_tokens)")


def test_several_labels_and_questions_are_looked_at_as_well(tmp_path, capsys):
    check = {
        "name": "rows",
        "value": 3,
        "threshold": None,
        "warns": False,
        "sentence": "3 rows\x1b[2J",
    }
    for _ in range(2):  # said once
        tell_section("once", {"notes": [], "checks": [check]})
    assert capsys.readouterr().out == "data once: 3 rows\\x1b[2J\n"
    frame = clean()
    frame["label"] = ["good;bad" if n % 3 else "bad" for n in range(1000)]
    assert "largest class" not in checked(tmp_path, frame, multi_label=True)
    found = prepare(
        DataSettings(text="document", question="question"),
        TestbedSource("stories", 200, 40, 40).load(),
    )
    assert "near copies in training and test" not in {check.name for check in found.checks}
