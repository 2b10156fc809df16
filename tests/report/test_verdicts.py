from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import (
    CANNOT_DECIDE,
    FAILS,
    MEETS,
    NO_DIFFERENCE,
    NOT_INFORMATIVE,
    NOT_MEANINGFUL,
    NOT_TESTED,
    TOO_RARE,
    Evidence,
)
from attnprobe.findings.quality import quality
from attnprobe.findings.verdicts import (
    COLUMNS,
    LINES,
    MECHANISMS,
    NONE,
    encoder_of,
    first_sentence,
    guessing,
    judge,
    mechanism_of,
    track_record,
)
from attnprobe.models.controls import GivenAttention, LexiconAttention

ABOVE, BELOW, ACROSS, WITHIN = (0.5, 0.3, 0.7), (-0.5, -0.7, -0.3), (0.1, -0.2, 0.4), (0.0, -0.05, 0.05)


def finding(numbers, criterion="erasure", level="word", *, primary=True, name="c", **evidence):
    claim = Claim(
        name, criterion, "A claim", "A paper", lambda _: None, "share, 0 to 1", speaks="for", level=level, smallest=0.1,
        primary=primary,
    )  # fmt: skip
    return Finding(claim, Evidence(*numbers, n=100, **evidence), "sst", "lstm")


def verdicts(findings, **settings):
    return judge([("test-x", one) for one in findings], **settings)


def lines(findings, **settings):
    """The rows of the card."""
    table = verdicts(findings, **settings)
    return [*table[table["primary"]].itertuples(index=False)]


def states(*findings, **settings):
    return {(one.criterion, one.level): one.verdict for one in lines(findings, **settings)}


@pytest.mark.parametrize(
    ("given", "state"),
    [(finding(ABOVE), MEETS), (finding(BELOW), FAILS), (finding(ACROSS), CANNOT_DECIDE), (finding(WITHIN), NO_DIFFERENCE),
     (finding((0.5, np.nan, np.nan)), CANNOT_DECIDE), (finding(ABOVE, rare=True), TOO_RARE),
     (finding(ABOVE, unasked="why"), NOT_INFORMATIVE), (finding(ABOVE, primary=False), NOT_TESTED)],
)  # fmt: skip
def test_a_line_goes_by_its_primary_claim(given, state):
    found = states(given, finding(BELOW, primary=False, name="d"))
    assert found["erasure", "word"] == state
    assert set(found) == set(LINES)
    assert all(other == NOT_TESTED for key, other in found.items() if key != ("erasure", "word"))


def test_a_card_is_corrected_for_the_number_of_its_claims():
    barely = (0.3, 0.105, 0.495)  # p = 0.044 against the smallest difference, 0.1
    assert states(finding(barely))["erasure", "word"] == MEETS
    both = lines([finding(barely), finding(barely, "agreement")])
    decided = [one for one in both if one.verdict != NOT_TESTED]
    assert [one.verdict for one in decided] == [CANNOT_DECIDE] * 2
    assert "among all the claims" in decided[0].reason
    assert decided[0].p == pytest.approx(0.088, abs=2e-3)
    clear = states(finding(ABOVE), finding(barely, "agreement"))
    assert (clear["erasure", "word"], clear["agreement", "word"]) == (MEETS, MEETS)


def test_a_model_that_guesses_has_no_verdict_at_all():
    found = verdicts([finding(ABOVE), finding(BELOW, "necessity", "model")], guessing="accuracy 0.500")
    assert set(found["verdict"]) == {NOT_MEANINGFUL, NOT_TESTED}
    sentence = "Do not read this attention: the classifier is not shown to be better than guessing (accuracy 0.500)."
    assert first_sentence(found) == first_sentence(verdicts([]), guessing="accuracy 0.500") == sentence


@pytest.mark.parametrize(("numbers", "other"), [(WITHIN, NOT_INFORMATIVE), (BELOW, NOT_INFORMATIVE), (ACROSS, MEETS)])
def test_where_attention_is_shown_not_to_be_needed_the_others_are_not_informative(numbers, other):
    found = states(finding(ABOVE), finding(numbers, "necessity", "model"))
    assert found["erasure", "word"] == other
    assert found["necessity", "model"] != NOT_INFORMATIVE


def test_two_primary_claims_of_one_line_are_a_mistake():
    with pytest.raises(ValueError, match="d and c: two primary claims"):
        verdicts([finding(ABOVE), finding(ABOVE, name="d")])


def test_the_first_sentence_tells_states_from_words():
    def said(word, state=None):
        return first_sentence(verdicts([finding(word), *([finding(state, level="state")] if state else [])]))

    sentences = [said(ABOVE), said(WITHIN, ABOVE), said(WITHIN, WITHIN), said(ACROSS), first_sentence(verdicts([]))]
    assert len(set(sentences)) == 5
    assert sentences[0].startswith("This attention is mostly on the words that decide: 0.")
    assert "states that decide, but not at words" in sentences[1]
    assert sentences[2].startswith("This attention does not point at the words that decide")
    assert "cannot be said" in sentences[3]
    assert "not tested" in sentences[4]


@pytest.mark.parametrize(
    ("details", "start", "end"),
    [
        (
            {"weight_reaches": 0.8, "most_texts_are_pointed_at": 0.9},
            "is mostly on",
            "reach 0.80, in 90 % of the texts.",
        ),
        ({"weight_reaches": 0.3}, "leans towards", "reach 0.30."),
        ({"most_texts_are_pointed_at": 0.4}, "leans towards", "in 40 % of the texts."),
        ({"weights_move_the_prediction": 0.002}, "is mostly on", "same prediction (to 0.002): they decide nothing."),
        ({"weights_move_the_prediction": 0.2}, "is mostly on", "at their best)."),
    ],
)
def test_where_the_weight_is_and_how_much_of_it_are_two_numbers(details, start, end):
    beside = [finding((value, value, value), primary=False, name=name) for name, value in details.items()]
    beside = [replace(one, claim=replace(one.claim, threshold=0.01)) for one in beside]
    sentence = first_sentence(verdicts([finding(ABOVE), *beside]))
    assert sentence.startswith(f"This attention {start} the words that decide: 0.50")
    assert sentence.endswith(end)


def test_the_first_sentence_says_that_other_attentions_fit_where_nothing_is_known_of_words():
    def share(numbers):
        one = finding(numbers, "exclusivity", "state")
        return replace(one, claim=replace(one.claim, threshold=0.5))

    few = share((0.233, 0.0, 0.254))
    alone = first_sentence(verdicts([few]))
    assert alone.startswith(
        "Do not present this attention as the only reason: for 77 % of the texts a very different one gives the same "
        "prediction. Whether this attention points at the words that decide was not tested"
    )
    assert "for 77 %" in first_sentence(verdicts([few, finding(ACROSS)]))
    assert "77 %" not in first_sentence(verdicts([few, finding(ABOVE)]))
    assert "Do not" not in first_sentence(verdicts([share((0.9, 0.8, 0.95))]))


def test_of_every_attention_that_nothing_is_learned_for_the_first_sentence_says_what_it_is():
    def named(kind):
        return [one for sub in kind.__subclasses__() for one in (sub, *named(sub))]

    there = {one.__name__ for one in named(GivenAttention) if one.__module__.startswith("attnprobe.")}
    abstract, learned = {"FocusedAttention"}, {"WordAttention"}
    assert LexiconAttention.__name__ in there
    assert there - abstract - learned <= set(MECHANISMS)
    said = first_sentence(verdicts([finding(ABOVE)]), mechanism=MECHANISMS["LexiconAttention"])
    assert said.startswith("This attention, which was counted from the labels of the training texts,")


FIVE = (
    "This attention, which was put on the words that are marked as the reason, is mostly on the words that decide:",
    "This attention, which goes by the position alone, whatever the word, does not point at the words that decide:",
    "This attention, which was drawn at random and never learned, does not point at the words that decide:",
    "Do not read this attention: the classifier is not shown to be better than guessing (right on ",
    "Do not read this attention: the classifier is not shown to be better than guessing (it says good of every text, right ",
)


def test_five_kinds_of_model_have_five_first_sentences():
    """Right by construction, by position, frozen random, labels by a coin, a guesser; numbers as such models have them."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 300)
    said = {"coin_flips": draw.integers(0, 2, 300), "guesser": np.ones(300, int)}
    skills = {"Rationale": (0.95, 0.94, 0.96), "Position": (0.0, -0.02, 0.02), "Random": (0.0, -0.03, 0.03)}
    sentences = []
    for kind, skill in skills.items():
        target = {"_target_": f"attnprobe.models.controls.{kind}Attention"}
        known = mechanism_of({"training": {"model": {"attention": target}}})
        sentences.append(first_sentence(verdicts([finding(skill)]), mechanism=known))
    for predictions in said.values():
        run = SimpleNamespace(quality=quality(labels, predictions, ["bad", "good"]))
        sentences.append(first_sentence(verdicts([finding(ABOVE)], guessing=guessing([run]))))
    assert [one.startswith(start) for one, start in zip(sentences, FIVE, strict=True)] == [True] * 5
    assert len(set(sentences)) == 5
    unsure = first_sentence(verdicts([finding((0.03, -0.1, 0.15))]), mechanism=known)
    assert unsure.startswith("Whether this attention, which was drawn at random and never learned, points at the words")
    assert "95 % interval -0.10 to 0.15" in unsure


def records(right, wrong, level="word"):
    """A table of one claim `c`; each of (models, meets)."""
    kinds = {"right": right, "wrong": wrong}
    rows = [("erasure", level, "lstm", kind, *counts, "c") for kind, counts in kinds.items() if counts]
    return pd.DataFrame(rows, columns=COLUMNS)


def test_a_verdict_carries_its_track_record_or_says_that_there_is_none():
    table = records((40, 38), (60, 3))
    assert track_record("erasure", "word", "lstm", "c", table=table).words == (
        "Track record on models of this kind: on right attention this test said yes in 95 % [83, 99] of 40, "
        "on wrong attention in 5 % [1, 14] of 60."
    )
    for asked in (("erasure", "word", "cnn", "c"), ("erasure", "word", "lstm", "another")):
        assert track_record(*asked, table=table).words == NONE
    assert track_record("erasure", "word", "lstm", "c", table=table.iloc[:1]).words == NONE
    alone = track_record("erasure", "state", "lstm", "c", table=records((40, 38), None, "state"))
    assert "95 % [83, 99] of 40; on wrong attention that is unknown" in alone.words
    assert lines([finding(ACROSS)])[5].track_record == ""  # nothing was decided


@pytest.mark.parametrize(
    ("right", "wrong", "of_yes", "of_no"),
    [((40, 40), (60, 0), MEETS, FAILS),
     ((40, 40), (60, 30), NOT_INFORMATIVE, FAILS),  # half of the wrong ones pass: a yes says nothing
     ((40, 10), (60, 0), MEETS, NOT_INFORMATIVE),  # a quarter of the right ones pass: a no says nothing
     ((5, 4), (10, 1), MEETS, FAILS)],  # too few models to show either
)  # fmt: skip
def test_a_test_that_was_shown_not_to_tell_decides_nothing(monkeypatch, right, wrong, of_yes, of_no):
    monkeypatch.setattr("attnprobe.findings.verdicts.calibration", lambda: records(right, wrong))
    for numbers, state in ((ABOVE, of_yes), (BELOW, of_no)):
        verdict = lines([finding(numbers)], encoder="lstm")[5]
        assert verdict.verdict == state
        assert verdict.track_record.startswith("Track record on models of this kind")
        assert ("for this kind of model the test says" in verdict.reason) == (state == NOT_INFORMATIVE)


def kinds(*counts):
    """A table of right and wrong attentions, (models, meets) each, for as many kinds of model."""
    tables = [records(right, wrong).assign(encoder=f"kind{place}") for place, (right, wrong) in enumerate(counts)]
    return pd.concat(tables)


WEAK, LOOSE, GOOD = ((40, 10), (60, 0)), ((40, 40), (60, 30)), ((40, 40), (60, 0))


@pytest.mark.parametrize(
    ("measured", "of_yes", "of_no"),
    [((WEAK, WEAK), MEETS, NOT_INFORMATIVE),
     ((LOOSE, LOOSE, LOOSE), NOT_INFORMATIVE, FAILS),
     ((WEAK, GOOD), MEETS, FAILS),  # it may be as the one or as the other
     ((WEAK, LOOSE), MEETS, FAILS),
     ((WEAK,), MEETS, FAILS),  # one kind of model says nothing of another
     (((*WEAK[:1], None),) * 2, MEETS, FAILS)],  # of words a rate on wrong attention belongs to it
)  # fmt: skip
def test_what_no_measured_kind_of_model_could_tell_is_not_told_of_another(monkeypatch, measured, of_yes, of_no):
    monkeypatch.setattr("attnprobe.findings.verdicts.calibration", lambda: kinds(*measured))
    for numbers, state in ((ABOVE, of_yes), (BELOW, of_no)):
        verdict = lines([finding(numbers)], encoder="transformer")[5]
        assert (verdict.verdict, verdict.track_record) == (state, NONE)
        assert ("for every kind of model that was measured (kind0, kind1" in verdict.reason) == (
            state == NOT_INFORMATIVE
        )


def test_the_shipped_record_lets_exclusivity_fail_no_kind_of_model():
    for encoder in ("lstm", "cnn", "average", "transformer"):
        assert not track_record("exclusivity", "state", encoder, "no_other_attention_exists").no_tells
        assert track_record("erasure", "word", encoder, "weights_follow_words").no_tells


def test_a_run_says_what_its_encoder_is():
    named = {"training": {"model": {"encoder": {"_target_": "attnprobe.models.encoders.LSTMEncoder"}}}}
    assert encoder_of(named) == "lstm"
    assert encoder_of({}) == encoder_of({"training": {"model": None}}) == ""


def test_the_rows_are_the_card_and_then_the_details():
    about_the_test = replace(
        finding(ABOVE, name="e"), claim=replace(finding(ABOVE).claim, speaks="neither", primary=False, name="e")
    )
    rows = verdicts([finding(BELOW, primary=False, name="d"), finding(ABOVE), about_the_test])
    assert rows["primary"].tolist() == [True] * len(LINES) + [False] * 2
    assert rows["claim"].tolist()[5:] == ["c", "", "", "d", "e"]
    assert rows.loc[5, ["criterion", "level", "verdict", "value", "smallest", "section"]].tolist() == [
        "erasure", "word", MEETS, 0.5, 0.1, "test-x",
    ]  # fmt: skip
    assert rows.loc[8, ["verdict", "interval_verdict"]].tolist() == [FAILS, FAILS]
    guessed = verdicts([finding(ABOVE)], guessing="by a coin").loc[5]
    assert (guessed["verdict"], guessed["interval_verdict"]) == (NOT_MEANINGFUL, MEETS)
