from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.evidence.claims import Finding
from attnprobe.evidence.deciding_words import (
    EVERY_CLASS_CLAIM,
    GUARDS,
    LOWEST_CLASS_CLAIM,
    SHARE_CLAIM,
    WEIGHTS_MATTER_CLAIM,
)
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.verdicts import Chip
from attnprobe.findings.chip import chip_of
from attnprobe.findings.groups import Group
from attnprobe.findings.lines import LINES, NECESSITY, STABILITY, WORDS
from attnprobe.findings.mechanisms import MECHANISMS, mechanism_of
from attnprobe.findings.quality import quality
from attnprobe.findings.rules import judge
from attnprobe.findings.track_record import without_record
from tests.findings.cards import ABOVE, ACROSS, BELOW, WITHIN, card, finding, guards
from tests.findings.counts import counts

WIDE = (9.0, -30.0, 40.0)


@pytest.fixture
def proven(monkeypatch):
    """The test of words has a track record on this kind of model."""
    record = counts((40, 38), (60, 0))
    monkeypatch.setattr("attnprobe.findings.track_record.calibration", lambda: record)


def card_of_yes(stability=ABOVE, agreement=None, **guard_numbers):
    """A card with a yes on the words that decide, and with what else is given."""
    findings = [finding(ABOVE), *guards(**guard_numbers)]
    if stability is not None:
        findings.append(finding(stability, *STABILITY.place, name="stability"))
    if agreement is not None:
        findings.append(finding(agreement, "agreement", "word", name="agreement"))
    return card(findings, encoder="lstm")


@pytest.mark.usefixtures("proven")
def test_read_it_takes_a_yes_with_a_record_and_nothing_against_it():
    yes = card_of_yes()
    assert yes.chip == Chip.READ
    assert yes.sentence.endswith("also in another training.")


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("stability", [WITHIN, ACROSS, None])
def test_without_a_yes_on_stability_it_is_with_care(stability):
    assert card_of_yes(stability=stability).chip == Chip.CARE


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize(
    ("stability", "doubt"),
    [
        (WITHIN, ", but another training attends elsewhere."),
        (ACROSS, "; whether other trainings agree is open."),
        (None, "; only one training was checked."),
    ],
)
def test_the_sentence_names_the_doubt_about_the_seeds(stability, doubt):
    assert card_of_yes(stability=stability).sentence.endswith(doubt)


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize(
    ("claim", "number", "words"),
    [
        (WEIGHTS_MATTER_CLAIM, 0.002, "but equal weights would predict the same"),
        (EVERY_CLASS_CLAIM, 0.2, "goes by no words of its own"),
    ],
)
def test_a_guard_that_falls_short_makes_it_with_care(claim, number, words):
    yes = card_of_yes(**{claim.name: number})
    assert yes.chip == Chip.CARE
    assert words in yes.sentence


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.claim.name)
def test_a_guard_at_its_least_number_is_silent(guard):
    assert card_of_yes(**{guard.claim.name: guard.least}).chip == Chip.READ


@pytest.mark.usefixtures("proven")
def test_a_no_to_another_question_makes_it_with_care():
    yes = card_of_yes(agreement=WITHIN)
    assert yes.chip == Chip.CARE
    assert "but “agrees with leaving out single words”: no" in yes.sentence


def test_a_yes_without_a_record_is_with_care_and_has_no_tick(monkeypatch):
    unknown = counts(None, None)
    monkeypatch.setattr("attnprobe.findings.track_record.calibration", lambda: unknown)
    yes = card_of_yes()
    assert yes.chip == Chip.CARE
    assert "unproven" in yes.sentence
    assert not word_of(yes).ticked


def card_of_shipped_claim(encoder):
    """A yes on the words that decide by the claim that the shipped record is of."""
    return card(
        [
            finding(ABOVE, name=SHARE_CLAIM.name),
            finding(ABOVE, *STABILITY.place, name="stability"),
            *guards(),
        ],
        encoder=encoder,
    )


@pytest.mark.parametrize("encoder", ["average", "cnn", "lstm", "transformer"])
def test_with_the_shipped_record_a_yes_on_a_measured_kind_may_be_read(encoder):
    assert card_of_shipped_claim(encoder).chip is Chip.READ
    with without_record():
        unproven = card_of_shipped_claim(encoder)
    assert unproven.chip is Chip.CARE
    assert unproven.sentence.endswith("but this test is unproven on such models.")


@pytest.mark.parametrize("encoder", ["bert", "mamba", ""])
def test_a_yes_on_a_kind_that_was_not_measured_or_on_one_checkpoint_alone_is_with_care(encoder):
    assert card_of_shipped_claim(encoder).chip is Chip.CARE


@pytest.mark.usefixtures("proven")
def test_a_yes_with_a_record_has_its_tick():
    assert word_of(card_of_yes()).ticked


def word_of(card):
    (word,) = [line for line in card.lines if line.place == WORDS.place]
    return word


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.claim.name)
def test_a_guard_that_is_missing_is_no_good_news(guard):
    present = [finding for finding in guards() if finding.claim != guard.claim]
    with pytest.raises(UserError, match=f"{guard.claim.name}: no number for this claim"):
        card([finding(ABOVE), *present])


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.claim.name)
def test_a_guard_under_another_name_is_missed_and_not_taken_to_be_good(guard):
    """Once a renamed claim silently improved the answer."""
    findings = guards()
    place = GUARDS.index(guard)
    renamed = replace(guard.claim, name="renamed")
    findings[place] = replace(findings[place], claim=renamed)
    with pytest.raises(UserError, match=guard.claim.name):
        card([finding(ABOVE), *findings])


def test_a_model_that_guesses_is_not_to_be_read():
    findings = [finding(ABOVE), finding(BELOW, *NECESSITY.place)]
    assert card(findings, guessing="accuracy 0.500").chip == Chip.POOR


def test_of_a_guesser_it_does_not_matter_what_was_tested():
    tested = judge([finding(ABOVE)], guessing="accuracy 0.500")
    assert chip_of(tested) == chip_of(judge([]), guessing="accuracy 0.500")


def test_needless_attention_is_not_shown_to_mean_anything():
    needless = card([finding(ABOVE), finding(WITHIN, *NECESSITY.place)])
    assert needless.chip == Chip.UNSHOWN
    assert needless.sentence.startswith("Equal weights classify as well here")


def test_too_few_texts_are_counted():
    wide = card([finding(WIDE)])
    assert wide.chip == Chip.UNSHOWN
    assert wide.sentence.startswith("Too few texts (100) to say")


def test_the_sentence_says_the_share():
    assert card_of_yes().sentence.startswith("50 % of the weight beyond chance is on words")
    no = card([finding((0.12, 0.08, 0.16))])  # asked is 0.1, and a smallest difference of 0.1
    assert no.chip == Chip.UNSHOWN
    assert no.sentence.startswith("8 to 16 % of the weight beyond chance")


def test_a_share_of_nothing_is_said_to_be_chance():
    words = card([finding(WITHIN)])
    assert words.chip == Chip.NO
    assert words.sentence == (
        "This attention is on words that move the prediction no more than by chance."
    )


@pytest.mark.usefixtures("proven")
@pytest.mark.parametrize(("share", "is_named"), [(0.1, True), (0.4, False)])
def test_a_class_with_a_much_smaller_share_is_named(share, is_named):
    lowest = Finding(
        LOWEST_CLASS_CLAIM, Evidence(share, share, share, 40, part="class spam"), "sst", "lstm"
    )
    findings = [finding(ABOVE), finding(ABOVE, *STABILITY.place, name="stability")]
    sentence = card([*findings, *guards(), lowest], encoder="lstm").sentence
    assert ("; in class spam, 10 %" in sentence) is is_named


def test_states_do_not_stand_under_a_chip_about_words():
    words = card([finding(WITHIN)])
    states = card([finding(WITHIN), finding(ABOVE, level="state")])
    assert words.chip == states.chip == Chip.NO
    assert words.sentence == states.sentence
    assert all(line.level != "state" for line in states.summary.answered)


def every_sentence():
    """Chip and sentence for a number on words, one on another line, a mechanism, and a guesser."""
    numbers = (ABOVE, BELOW, ACROSS, WITHIN, WIDE, None)
    longest = max(MECHANISMS.values(), key=len)
    places = [place for place in LINES if place != WORDS.place]
    for word, beside, place in product(numbers, (ABOVE, WITHIN, None), places):
        findings = guards()
        if word is not None:
            findings.append(finding(word))
        if beside is not None:
            findings.append(finding(beside, *place))
        judgements = judge(findings)
        for mechanism, guessing in product(("", longest), ("", "a coin")):
            yield chip_of(judgements, mechanism=mechanism, guessing=guessing)


def test_no_sentence_has_more_than_twenty_four_words():
    sentences = set(every_sentence())
    assert {chip for chip, _ in sentences} == set(Chip) - {Chip.READ}  # nothing has a record here
    assert max(len(sentence.split()) for _, sentence in sentences) <= 24


def test_the_sentence_says_what_attention_is_that_was_not_learned():
    mechanism = MECHANISMS["LexiconAttention"]
    sentence = card([finding(ABOVE), *guards()], mechanism=mechanism).sentence
    assert sentence.startswith(f"Of this attention ({mechanism})")


@pytest.mark.parametrize(
    ("attention", "skill", "chip"),
    [
        ("Rationale", (0.95, 0.94, 0.96), Chip.CARE),
        ("Position", (0.0, -0.02, 0.02), Chip.NO),
        ("Random", (0.0, -0.03, 0.03), Chip.NO),
    ],
)
def test_attention_by_construction_has_its_chip_and_says_what_it_is(attention, skill, chip):
    """Numbers as such models have them."""
    target = {"_target_": f"attnprobe.models.controls.{attention}Attention"}
    mechanism = mechanism_of({"training": {"model": {"attention": target}}})
    constructed = card([finding(skill), *guards()], mechanism=mechanism)
    assert constructed.chip == chip
    assert mechanism in constructed.sentence


DRAW = np.random.default_rng(0)
LABELS = DRAW.integers(0, 2, 300)


@pytest.mark.parametrize(
    "predictions",
    [DRAW.integers(0, 2, 300), np.ones(300, int)],
    ids=["coin flips", "one class for every text"],
)
def test_a_classifier_that_learnt_nothing_is_not_to_be_read(predictions):
    run = SimpleNamespace(quality=quality(LABELS, predictions, ["bad", "good"]))
    guessing = Group("sst", "lstm", "", (run,)).guessing
    assert card([finding(ABOVE)], guessing=guessing).chip == Chip.POOR
