import re

import numpy as np
import pytest

from attnprobe.data.labels import CodeSource
from attnprobe.data.testbed.codes import generate_codes

CODES = 6


def read(words):
    """Code → places of its signs, by reading the words alone."""
    places = {code: [] for code in range(CODES)}
    for place, word in enumerate(words):
        if word.startswith("sign") and words[place - 1] != "no":
            for code in re.findall(r"\d+", word):
                places[int(code)].append(place)
    return places


def texts(size=300, **changes):
    return list(generate_codes(**{"size": size, "codes": CODES, "length": 60, "seed": 3} | changes))


def is_sign_of(word, code):
    """Whether a word is a sign of this code, alone or with another one."""
    return word.startswith("sign") and str(code) in re.findall(r"\d+", word)


def places_of(marks):
    return [place for place, is_marked in enumerate(marks) if is_marked]


def test_reasons_are_the_signs_that_no_negates():
    for text in texts():
        for code, places in read(text.words).items():
            marks = text.reasons[code]
            assert places_of(marks) == places
            assert len(marks) == len(text.words)


def test_a_text_depends_on_the_seed_and_its_number_alone():
    assert texts(size=5) == texts(size=9)[:5]
    assert texts(size=5) != texts(size=5, seed=4)


def test_synonyms_and_shared_signs_all_occur():
    words = {word for text in texts() for word in text.words}
    signs = {word for word in words if word.startswith("sign")}
    expected = {f"sign{code}{letter}" for code in range(CODES) for letter in "ab"}
    assert signs == expected | {"sign0and1", "sign2and3", "sign4and5"}


def test_some_texts_have_no_code_and_others_several():
    present = []
    for text in texts():
        present.append(sum(any(marks) for marks in text.reasons))
    assert min(present) == 0
    assert 0.2 < sum(present) / (CODES * len(present)) < 0.4


def test_many_texts_negate_a_sign():
    is_negated = ["no sign" in " ".join(text.words) for text in texts()]
    assert 0.3 < sum(is_negated) / len(is_negated) < 0.95


def test_texts_are_as_long_as_they_should_be():
    for text in texts():
        assert 66 <= len(text.words) < 66 + 40 + CODES * 7


def test_signs_are_also_those_that_are_negated():
    for text in texts(size=100):
        for code in range(CODES):
            named = [is_sign_of(word, code) for word in text.words]
            assert places_of(text.signs[code]) == places_of(named)


def test_headings_are_nothing_else():
    for text in texts(size=100):
        places = places_of(text.headings)
        assert [text.words[place] for place in places] == ["history", "findings", "plan"]
        for place in places:
            assert text.words[place + 1] == ":"


@pytest.fixture(scope="module")
def rows():
    """Texts that are asked for a code each: their words, the code, and the columns."""
    source = CodeSource(train_size=20, validation_size=1, test_size=1, codes=CODES, length=60)
    rows = []
    for row in source.load()["train"]:
        code = int(row["asked_label"].removeprefix("code"))
        rows.append((row["text"].split(), code, row))
    return rows


@pytest.mark.parametrize(("column", "distance"), [("own_signs", 0), ("signs_of_another", 2)])
def test_attentions_made_up_for_a_code_are_on_its_signs_or_another_ones(rows, column, distance):
    """Where a text has no such sign, they are even."""
    for words, code, columns in rows:
        weights = np.array(columns[column])
        is_sign = [is_sign_of(word, (code + distance) % CODES) for word in words]
        assert weights.sum() == pytest.approx(1, abs=1e-9)
        if any(is_sign):
            assert weights[is_sign].sum() == pytest.approx(0.95, abs=1e-9)
        else:
            assert np.ptp(weights) < 1e-9


def test_attentions_made_up_for_headings_are_on_them(rows):
    for words, _, columns in rows:
        weights = np.array(columns["headings"])
        is_heading = np.isin(words, ["history", "plan"])
        assert weights[is_heading] == pytest.approx(0.95 / 3, abs=1e-9)


@pytest.mark.parametrize("codes", [1, 2, 3, 4, 5])
def test_the_signs_of_another_code_are_never_the_codes_own(codes):
    source = CodeSource(train_size=30, validation_size=1, test_size=1, codes=codes, length=60)
    for row in source.load()["train"]:
        code = row["asked_label"].removeprefix("code")
        weights = row["signs_of_another"]
        for weight, word in zip(weights, row["text"].split(), strict=True):
            if is_sign_of(word, code):
                assert weight <= 1 / len(weights) + 1e-9
