"""The answer on the terminal: few lines, each within 80 characters, with what is needed and no more."""

import pytest

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import Evidence
from attnprobe.findings.quality import quality
from attnprobe.findings.verdicts import LINES, answer_of, judge
from attnprobe.report.terminal import GAUGE, WIDTH, answer_lines

ABOVE, ACROSS = (0.5, 0.4, 0.7), (0.1, -0.2, 0.4)
GOOD, COIN = quality([0, 0, 1, 1] * 50, [0, 0, 1, 0] * 50), quality([0] * 97 + [1] * 3, [0] * 100)


def told(numbers, guessing="", quality=GOOD):
    """The lines of a group with these numbers by line."""
    found = [
        ("", Finding(Claim(f"c{place}", line[0], "A claim", "", lambda _: None, "", speaks="for", level=line[1],
                           primary=True), Evidence(*own, n=60), "d", "m"))
        for place, (line, own) in enumerate(numbers.items())
    ]  # fmt: skip
    table = judge(found, guessing=guessing)
    chip, sentence = answer_of(table, guessing=guessing)
    return chip, answer_lines(table.assign(group="d · m", chip=chip, sentence=sentence), quality)


@pytest.mark.parametrize("lines", [(), tuple(LINES), tuple(LINES)[3:6]])
@pytest.mark.parametrize("numbers", [ABOVE, ACROSS, (9.0, -30.0, 40.0)])
def test_it_is_short_and_narrow(lines, numbers):
    chip, said = told(dict.fromkeys(lines, numbers))
    assert len(said) <= 13
    assert max(map(len, said)) <= WIDTH
    assert said[0] == f"d · m: {chip}"
    heads = [line[2:12].strip() for line in said]
    asked = {ABOVE: "yes"}.get(numbers, "open") if lines else "untested"
    assert heads.count(asked) == (len(lines) if asked == "yes" else 1)
    assert sum("#" in line for line in said) == (("erasure", "word") in lines and numbers is ABOVE)


def test_of_a_poor_model_it_is_said_what_to_do_and_nothing_else():
    chip, said = told({("erasure", "word"): ABOVE}, guessing="a coin", quality=COIN)
    assert chip == "Do not read"
    assert [line[2:12].strip() for line in said[2:]] == ["model", "to do"]
    assert "97 % of 100" in said[2]
    assert "training.epochs=" in said[3]


@pytest.mark.parametrize("numbers", [ABOVE, (0.3, 0.21, 0.45), (1.0, 0.9, 1.2)])
def test_a_gauge_has_its_number_within_its_interval(numbers):
    (line,) = [line for line in told({("erasure", "word"): numbers})[1] if "|" in line]
    drawn = line.split("|")[1]
    assert len(drawn) == GAUGE
    places = [round(min(one, 1) * (GAUGE - 1)) for one in numbers]
    assert drawn.index("#") == places[0]
    assert [at for at, mark in enumerate(drawn) if mark != "-"] == [*range(places[1], places[2] + 1)]
