import pickle
import re
from pathlib import Path

import pytest

from attnprobe.evidence import verdicts
from attnprobe.evidence.verdicts import Answer, Chip, Verdict

PACKAGE = Path(verdicts.__file__).parents[1]


def test_the_table_in_the_docstring_is_the_code():
    rows = re.findall(r"^\| ([a-z ]+) \| (\w+) \| ([A-Z]\w*(?: \w+)*)", verdicts.__doc__, re.M)
    assert rows == [(str(verdict), str(verdict.answer), str(verdict.chip)) for verdict in Verdict]


def test_every_answer_belongs_to_a_verdict():
    assert {verdict.answer for verdict in Verdict} == set(Answer)


def test_only_read_it_takes_more_than_a_verdict():
    assert set(Chip) - {verdict.chip for verdict in Verdict} == {Chip.READ}


def test_only_a_yes_and_a_no_are_decisions():
    decided = {verdict for verdict in Verdict if verdict.is_decided}
    assert decided == {Verdict.MEETS, Verdict.FAILS, Verdict.NO_DIFFERENCE}


@pytest.mark.parametrize("word", [*Verdict, *Answer, *Chip])
def test_a_word_is_equal_to_its_text_and_survives_a_file(word):
    assert word == str(word) == word.value
    assert type(word)(str(word)) is word
    assert pickle.loads(pickle.dumps(word)) is word


def test_a_word_that_is_none_of_them_is_refused():
    with pytest.raises(ValueError, match="'passes' is not a valid Verdict"):
        Verdict("passes")


LONG_ENOUGH = {str(word) for word in [*Verdict, *Chip] if " " in word}
"""The words that can be nothing else."""


def test_the_words_are_spelled_in_no_other_file():
    """Elsewhere they are referred to as members, so that a renamed one cannot be forgotten."""
    spelled = {
        (path.relative_to(PACKAGE).as_posix(), word)
        for path in PACKAGE.rglob("*.py")
        for word in LONG_ENOUGH
        if re.search(rf"[\"']{word}[\"']", path.read_text(encoding="utf-8"))
    }
    assert {name for name, _ in spelled} == {"evidence/verdicts.py"}
