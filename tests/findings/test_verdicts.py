from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import VERDICTS, Evidence
from attnprobe.findings import verdicts as rules
from attnprobe.findings.quality import quality
from attnprobe.findings.verdicts import (
    CALIBRATION,
    CHIPS,
    LINES,
    MECHANISMS,
    NONE,
    answer_of,
    judge,
    track_record,
)
from attnprobe.models.controls import GivenAttention, LexiconAttention

(
    MEETS,
    FAILS,
    NO_DIFFERENCE,
    CANNOT_DECIDE,
    TOO_RARE,
    NOT_INFORMATIVE,
    NOT_MEANINGFUL,
    NOT_TESTED,
) = VERDICTS
READ, CARE, NO, UNSHOWN, POOR = CHIPS
ABOVE = (0.5, 0.3, 0.7)
BELOW = (-0.5, -0.7, -0.3)
ACROSS = (0.1, -0.2, 0.4)
WITHIN = (0.0, -0.05, 0.05)


def finding(numbers, criterion="erasure", level="word", *, primary=True, name="c", **evidence):
    claim = Claim(
        name,
        criterion,
        "A claim",
        "A paper",
        lambda _: None,
        "share, 0 to 1",
        speaks="for",
        level=level,
        smallest=0.1,
        primary=primary,
    )
    return Finding(claim, Evidence(*numbers, n=100, **evidence), "sst", "lstm")


def verdicts(findings, **settings):
    return judge([("test-x", one) for one in findings], **settings)


def lines(findings, **settings):
    table = verdicts(findings, **settings)
    return [*table[table["primary"]].itertuples(index=False)]


def states(*findings, **settings):
    return {(one.criterion, one.level): one.verdict for one in lines(findings, **settings)}


@pytest.mark.parametrize(
    ("given", "state"),
    [
        (finding(ABOVE), MEETS),
        (finding(BELOW), FAILS),
        (finding(ACROSS), CANNOT_DECIDE),
        (finding(WITHIN), NO_DIFFERENCE),
        (finding((0.5, np.nan, np.nan)), CANNOT_DECIDE),
        (finding(ABOVE, rare=True), TOO_RARE),
        (finding(ABOVE, unasked="why"), NOT_INFORMATIVE),
        (finding(ABOVE, primary=False), NOT_TESTED),
    ],
)
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
    found = verdicts(
        [finding(ABOVE), finding(BELOW, "necessity", "model")], guessing="accuracy 0.500"
    )
    assert set(found["verdict"]) == {NOT_MEANINGFUL, NOT_TESTED}
    assert answer_of(found) == answer_of(verdicts([]), guessing="accuracy 0.500")
    assert answer_of(found)[0] == POOR
    assert set(found["answer"]) == {"open", "untested"}


@pytest.mark.parametrize(
    ("numbers", "other"), [(WITHIN, NOT_INFORMATIVE), (BELOW, NOT_INFORMATIVE), (ACROSS, MEETS)]
)
def test_where_attention_is_shown_not_to_be_needed_the_others_are_not_informative(numbers, other):
    found = states(finding(ABOVE), finding(numbers, "necessity", "model"))
    assert found["erasure", "word"] == other
    assert found["necessity", "model"] != NOT_INFORMATIVE


def test_two_primary_claims_of_one_line_are_a_mistake():
    with pytest.raises(ValueError, match="d and c: two primary claims"):
        verdicts([finding(ABOVE), finding(ABOVE, name="d")])


def test_too_few_texts_are_counted_and_states_are_no_words():
    wide = answer_of(verdicts([finding((9.0, -30.0, 40.0))]))
    assert (wide[0], "(100)" in wide[1]) == (UNSHOWN, True)
    of_words = finding(WITHIN)
    of_states = finding(ABOVE, level="state")
    assert answer_of(verdicts([of_words, of_states])) != answer_of(verdicts([of_words]))
    assert (
        answer_of(verdicts([finding(ABOVE), finding(WITHIN, "necessity", "model")]))[0] == UNSHOWN
    )


@pytest.mark.parametrize(
    ("details", "chip", "word"),
    [
        ({}, READ, "also"),
        (
            {
                "weight_reaches": 0.8,
                "most_texts_are_pointed_at": 0.9,
                "weights_move_the_prediction": 0.2,
            },
            READ,
            "also",
        ),
        ({"weight_reaches": 0.3}, CARE, "leans"),
        ({"most_texts_are_pointed_at": 0.4}, CARE, "leans"),
        ({"weights_move_the_prediction": 0.002}, CARE, "equal weights"),
        ({"agreement": WITHIN}, CARE, "no"),
        ({"every_class_has_such_words": 0.2}, CARE, "one class"),
        ({"stability": WITHIN}, CARE, "elsewhere"),
        ({"stability": ACROSS}, CARE, "open"),
        ({"stability": None}, CARE, "untested"),
        ({"record": False}, CARE, "unproven"),
    ],
)
def test_read_it_takes_a_yes_with_a_record_and_nothing_against_it(monkeypatch, details, chip, word):
    given = {"stability": ABOVE, "agreement": None, "record": True} | details
    known = records((40, 38), (60, 0)) if given.pop("record") else records(None, None)
    monkeypatch.setattr("attnprobe.findings.verdicts.calibration", lambda: known)
    found = [finding(ABOVE)]
    levels = {"stability": "model", "agreement": "word"}
    for criterion, level in levels.items():
        if (numbers := given.pop(criterion)) is not None:
            found.append(finding(numbers, criterion, level, name=criterion))
    beside = [
        finding((value, value, value), primary=False, name=name) for name, value in given.items()
    ]
    found += [replace(one, claim=replace(one.claim, threshold=0.01)) for one in beside]
    table = verdicts(found, encoder="lstm")
    assert answer_of(table)[0] == chip
    assert word in answer_of(table)[1]
    row = table[
        table["primary"] & (table["level"] == "word") & (table["criterion"] == "erasure")
    ].iloc[0]
    assert (row["answer"], bool(row["ticked"])) == ("yes", word != "unproven")


def test_no_sentence_has_more_than_twenty_words():
    numbers = (ABOVE, BELOW, ACROSS, WITHIN, (9.0, -30.0, 40.0), None)
    others = set(LINES) - {("erasure", "word")}
    longest = max(MECHANISMS.values(), key=len)
    said = set()
    for word, other, line in product(numbers, (ABOVE, WITHIN, None), others):
        found = [*([finding(word)] if word else []), *([finding(other, *line)] if other else [])]
        table = verdicts(found)
        said |= {
            answer_of(table, mechanism=one, guessing=guess)
            for one in ("", longest)
            for guess in ("", "a coin")
        }
    assert {chip for chip, _ in said} == set(CHIPS) - {READ}  # nothing has a record here
    assert max(len(sentence.split()) for _, sentence in said) <= 20


def test_the_documented_error_rates_of_the_chip_are_those_of_the_shipped_record():
    """Read it and With care are a yes on words, so their rate together is that of this verdict; No
    is its no."""
    table = pd.read_parquet(CALIBRATION)
    table = table[
        (table["claim"] == "weight_is_on_deciding_words")
        & ~table["encoder"].isin(rules.ONE_CHECKPOINT)
    ]
    sums = table.groupby("rightness")[["asked", "models", "meets"]].sum()
    assert sums.loc["right", ["meets", "asked"]].tolist() == [316, 332]
    assert sums.loc["wrong", ["meets", "asked"]].tolist() == [2, 436]
    assert sums.loc["right", "models"] - sums.loc["right", "meets"] == 1
    page = " ".join(
        (Path(__file__).parents[2] / "docs" / "concepts.md").read_text(encoding="utf-8").split()
    )
    assert all(rate in page for rate in ("316 of 332", "2 of 436", "1 of 332"))


def test_of_every_attention_that_nothing_is_learned_for_the_first_sentence_says_what_it_is():
    def named(kind):
        return [one for sub in kind.__subclasses__() for one in (sub, *named(sub))]

    there = {
        one.__name__ for one in named(GivenAttention) if one.__module__.startswith("attnprobe.")
    }
    abstract = {"FocusedAttention"}
    learned = {"WordAttention"}
    assert LexiconAttention.__name__ in there
    assert there - abstract - learned <= set(MECHANISMS)
    said = answer_of(verdicts([finding(ABOVE)]), mechanism=MECHANISMS["LexiconAttention"])[1]
    assert said.startswith(f"This attention ({MECHANISMS['LexiconAttention']})")


def test_five_kinds_of_model_have_their_chips():
    """Right by construction, by position, frozen random, labels by a coin, a guesser; numbers as
    such models have them."""
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 300)
    said = {"coin_flips": draw.integers(0, 2, 300), "guesser": np.ones(300, int)}
    skills = {
        "Rationale": (0.95, 0.94, 0.96),
        "Position": (0.0, -0.02, 0.02),
        "Random": (0.0, -0.03, 0.03),
    }
    answers = []
    for kind, skill in skills.items():
        target = {"_target_": f"attnprobe.models.controls.{kind}Attention"}
        known = rules.mechanism_of({"training": {"model": {"attention": target}}})
        answers.append(answer_of(verdicts([finding(skill)]), mechanism=known))
        assert known in answers[-1][1]
    for predictions in said.values():
        run = SimpleNamespace(quality=quality(labels, predictions, ["bad", "good"]))
        answers.append(answer_of(verdicts([finding(ABOVE)], guessing=rules.guessing([run]))))
    assert [chip for chip, _ in answers] == [CARE, NO, NO, POOR, POOR]


def records(right, wrong, level="word"):
    """A table of one claim `c`; each of (models, meets)."""
    kinds = {"right": right, "wrong": wrong}
    rows = [
        ("erasure", level, "lstm", kind, *counts, "c") for kind, counts in kinds.items() if counts
    ]
    return pd.DataFrame(rows, columns=rules.COLUMNS)


def test_a_verdict_carries_its_track_record_or_says_that_there_is_none():
    table = records((40, 38), (60, 3))
    assert track_record("erasure", "word", "lstm", "c", table=table).words == (
        "Track record on models of this kind: on right attention this test said yes in 95 % [83, 99] of 40, "
        "on wrong attention in 5 % [1, 14] of 60."
    )
    for *asked, known in (
        ("cnn", "c", table),
        ("lstm", "another", table),
        ("lstm", "c", table.iloc[:1]),
    ):
        assert track_record("erasure", "word", *asked, table=known).words == NONE
    alone = track_record("erasure", "state", "lstm", "c", table=records((40, 38), None, "state"))
    assert "95 % [83, 99] of 40. On wrong attention it is unknown" in alone.words
    assert lines([finding(ACROSS)])[5].track_record == ""  # nothing was decided


WEAK = ((40, 10), (60, 0))
LOOSE = ((40, 40), (60, 30))
GOOD = ((40, 40), (60, 0))
FEW = ((5, 4), (10, 1))


@pytest.mark.parametrize(
    ("encoder", "measured", "of_yes", "of_no"),
    [
        ("kind0", (GOOD,), MEETS, FAILS),
        ("kind0", (FEW,), MEETS, FAILS),  # too few models to show either
        (
            "kind0",
            (LOOSE,),
            NOT_INFORMATIVE,
            FAILS,
        ),  # half of the wrong ones pass: a yes says nothing
        (
            "kind0",
            (WEAK,),
            MEETS,
            NOT_INFORMATIVE,
        ),  # a quarter of the right ones pass: a no says nothing
        ("other", (WEAK, WEAK), MEETS, NOT_INFORMATIVE),
        ("other", (LOOSE, LOOSE, LOOSE), NOT_INFORMATIVE, FAILS),
        ("other", (WEAK, GOOD), MEETS, FAILS),
        ("other", (WEAK, LOOSE), MEETS, FAILS),  # it may be as the one or as the other
        ("other", (WEAK,), MEETS, FAILS),  # one kind of model says nothing of another
        ("other", (((40, 10), None),) * 2, MEETS, FAILS),
    ],  # of words a rate on wrong attention belongs to it
)
def test_what_was_shown_not_to_tell_decides_nothing_of_this_kind_of_model_nor_of_another(
    monkeypatch, encoder, measured, of_yes, of_no
):
    tables = [
        records(right, wrong).assign(encoder=f"kind{place}")
        for place, (right, wrong) in enumerate(measured)
    ]
    monkeypatch.setattr("attnprobe.findings.verdicts.calibration", lambda: pd.concat(tables))
    cited = {
        "kind0": ("this kind of model", "Track record on models"),
        "other": ("every kind of model that was", NONE),
    }
    for numbers, state in ((ABOVE, of_yes), (BELOW, of_no)):
        verdict = lines([finding(numbers)], encoder=encoder)[5]
        assert verdict.verdict == state
        assert verdict.track_record.startswith(cited[encoder][1])
        assert (f"for {cited[encoder][0]}" in verdict.reason) == (state == NOT_INFORMATIVE)


def test_a_claim_about_trained_models_cites_what_so_many_seeds_show(monkeypatch, tmp_path):
    rows = [
        ("a", seeds, effect, yes)
        for seeds, told in {3: (0.02, 0.4, 0.7), 9: (0.01, 0.9, 1.0)}.items()
        for effect, yes in zip((0.0, 0.1, 0.3), told, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["claim", "seeds", "effect", "yes"]).assign(models=120)
    table.to_csv(tmp_path / "audits.csv", index=False)
    monkeypatch.setattr("attnprobe.findings.verdicts.AUDITS", tmp_path / "audits.csv")
    said = rules.record_of_seeds("a")
    for part in (
        "from 120 small models",
        "With 3 seeds even a gain of 0.30 is shown in only 70 %",
        "With 9 seeds a gain below 0.10 cannot be shown",
        "at most 2 % said yes",
    ):
        assert part in said
    assert rules.record_of_seeds("b") == ""  # the null: nothing was measured of it
    claim = replace(finding(ABOVE).claim, name="a", criterion="necessity", level="model")
    assert lines([replace(finding(ABOVE), claim=claim)])[0].track_record == said
    # the shipped table: more seeds show smaller gains, and hardly any yes where there is none
    monkeypatch.undo()
    audits = pd.read_csv(rules.AUDITS)
    for claim in ("attention_is_needed", "attention_guides", "seeds_attend_alike"):
        own = audits[audits["claim"] == claim]
        assert own[own["effect"] == 0]["yes"].max() <= 0.05
        largest = own[own["effect"] == own.groupby("cell")["effect"].transform("max")]
        rates = largest.groupby("seeds")["yes"].mean()
        assert rates.loc[3] <= rates.loc[9]
        assert rules.record_of_seeds(claim).startswith("Track record, audits drawn from")
        assert ("a nearness below" in rules.record_of_seeds(claim)) == (
            claim == "seeds_attend_alike"
        )


def test_the_shipped_record_lets_exclusivity_fail_no_kind_of_model():
    for encoder in ("lstm", "cnn", "average", "transformer"):
        assert not track_record(
            "exclusivity", "state", encoder, "no_other_attention_exists"
        ).no_tells
        assert track_record("erasure", "word", encoder, "weights_follow_words").no_tells


def test_a_run_says_what_its_encoder_is():
    named = {
        "training": {"model": {"encoder": {"_target_": "attnprobe.models.encoders.LSTMEncoder"}}}
    }
    assert rules.encoder_of(named) == "lstm"
    assert rules.encoder_of({}) == rules.encoder_of({"training": {"model": None}}) == ""
    pretrained = {
        "training": {"model": {}},
        "model_facts": {"family": "bert", "site": "layer -1, heads all, pooled"},
    }
    assert rules.encoder_of(pretrained) == "bert"
    other_site = pretrained | {
        "model_facts": {"family": "bert", "site": "layer 0, heads 3, pooled"}
    }
    assert rules.encoder_of(other_site) == ""


def test_the_verdict_of_a_minilm_audit_cites_the_shipped_record_of_minilm():
    def of(site):
        model = {"family": "bert", "site": f"layer -1, heads {site}, pooled"}
        asked = replace(
            finding(ABOVE), claim=replace(finding(ABOVE).claim, name="weight_is_on_deciding_words")
        )
        return lines(
            [asked], encoder=rules.encoder_of({"model_facts": model, "training": {"model": {}}})
        )[5]

    whole = of("all")
    one_head = of("3")
    counts = pd.read_parquet(CALIBRATION).query("encoder == 'bert'").set_index("rightness")
    assert whole.track_record.startswith("Track record on MiniLM fine-tuned on planted words")
    for kind in ("right", "wrong"):
        assert f"of {counts.loc[kind, 'models']}" in whole.track_record
    assert (whole.verdict, whole.ticked) == (
        MEETS,
        False,
    )  # one checkpoint, and too few: nothing goes by it
    assert one_head.track_record == NONE  # the null: it was not asked of one head
    loose = records((40, 38), (60, 30)).assign(
        encoder="bert"
    )  # of a kind with as many models a yes would say nothing
    assert track_record("erasure", "word", "bert", "c", table=loose).yes_tells
    assert not track_record(
        "erasure", "word", "lstm", "c", table=loose.assign(encoder="lstm")
    ).yes_tells


def test_the_rows_are_the_card_and_then_the_details():
    claim = replace(finding(ABOVE).claim, speaks="neither", primary=False, name="e")
    about_the_test = replace(finding(ABOVE), claim=claim)
    rows = verdicts([finding(BELOW, primary=False, name="d"), finding(ABOVE), about_the_test])
    assert rows["primary"].tolist() == [True] * len(LINES) + [False] * 2
    assert rows["claim"].tolist()[5:] == ["c", "", "", "d", "e"]
    assert rows.loc[
        5, ["criterion", "level", "verdict", "value", "smallest", "section"]
    ].tolist() == [
        "erasure",
        "word",
        MEETS,
        0.5,
        0.1,
        "test-x",
    ]
    assert rows.loc[8, ["verdict", "interval_verdict"]].tolist() == [FAILS, FAILS]
    guessed = verdicts([finding(ABOVE)], guessing="by a coin").loc[5]
    assert (guessed["verdict"], guessed["interval_verdict"]) == (NOT_MEANINGFUL, MEETS)
