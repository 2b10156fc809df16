import re

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


def test_reasons_are_the_signs_that_no_negates():
    for text in texts():
        for code, places in read(text.words).items():
            marks = text.reasons[code]
            assert [place for place, mark in enumerate(marks) if mark] == places
            assert len(marks) == len(text.words)


def test_synonyms_shared_signs_negation_and_texts_without_a_code_all_occur():
    everything = texts()
    words = {word for text in everything for word in text.words}
    signs = {word for word in words if word.startswith("sign")}
    expected = {f"sign{code}{letter}" for code in range(CODES) for letter in "ab"}
    assert signs == expected | {"sign0and1", "sign2and3", "sign4and5"}
    present = [sum(any(marks) for marks in text.reasons) for text in everything]
    assert min(present) == 0
    assert 0.2 < sum(present) / (CODES * len(everything)) < 0.4
    negated = [text for text in everything if "no sign" in " ".join(text.words)]
    assert 0.3 < len(negated) / len(everything) < 0.95
    assert all(66 <= len(text.words) < 66 + 40 + CODES * 7 for text in everything)


def test_a_text_depends_on_the_seed_and_its_number_alone():
    assert texts(size=5) == texts(size=9)[:5]
    assert texts(size=5) != texts(size=5, seed=4)


def test_signs_are_also_those_that_are_negated_and_headings_are_nothing_else():
    for text in texts(size=100):
        for code in range(CODES):
            places = [place for place, is_sign in enumerate(text.signs[code]) if is_sign]
            named = [
                place
                for place, word in enumerate(text.words)
                if word.startswith("sign") and str(code) in re.findall(r"\d+", word)
            ]
            assert places == named
        places = [place for place, is_heading in enumerate(text.headings) if is_heading]
        assert [text.words[place] for place in places] == ["history", "findings", "plan"]
        assert all(text.words[place + 1] == ":" for place in places)


def test_attentions_made_up_for_a_code_are_on_its_signs_another_ones_or_the_headings():
    table = CodeSource(train_size=20, validation_size=1, test_size=1, codes=CODES, length=60)
    for row in table.load()["train"]:
        words = row["text"].split()
        code = int(row["asked_label"].removeprefix("code"))
        for column, expected in (("own_signs", code), ("signs_of_another", (code + 2) % CODES)):
            weights = row[column]
            signs = [
                place
                for place, word in enumerate(words)
                if word.startswith("sign") and str(expected) in re.findall(r"\d+", word)
            ]
            on_signs = sum(weights[place] for place in signs)
            assert abs(sum(weights) - 1) < 1e-9
            assert abs(on_signs - 0.95) < 1e-9 if signs else max(weights) - min(weights) < 1e-9
        headings = [place for place, word in enumerate(words) if word in ("history", "plan")]
        assert all(abs(row["headings"][place] - 0.95 / 3) < 1e-9 for place in headings)


@pytest.mark.parametrize("codes", [1, 2, 3, 4, 5])
def test_the_signs_of_another_code_are_never_the_codes_own(codes):
    table = CodeSource(train_size=30, validation_size=1, test_size=1, codes=codes, length=60)
    for row in table.load()["train"]:
        code = row["asked_label"].removeprefix("code")
        weights = row["signs_of_another"]
        for place, word in enumerate(row["text"].split()):
            if word.startswith("sign") and code in re.findall(r"\d+", word):
                assert weights[place] <= 1 / len(weights) + 1e-9
