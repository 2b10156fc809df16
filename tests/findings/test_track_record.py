import pandas as pd
import pytest

from attnprobe.evidence.deciding_words import SHARE_CLAIM
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings import track_record as records
from attnprobe.findings.lines import NECESSITY, WORDS
from attnprobe.findings.mechanisms import encoder_of
from attnprobe.findings.rules import judge
from attnprobe.findings.track_record import (
    AUDITS,
    NONE,
    record_of_seeds,
    track_record,
)
from tests.findings.cards import ABOVE, ACROSS, BELOW, finding
from tests.findings.counts import counts

KNOWN = counts((40, 38), (60, 3))


def line_of(finding, place=WORDS.place, **settings):
    judgements = judge([finding], **settings)
    (line,) = [line for line in judgements if line.primary and line.place == place]
    return line


def test_a_verdict_carries_its_track_record():
    assert track_record("erasure", "word", "lstm", "c", answers=KNOWN).words == (
        "Track record on models of this kind, intervals over rules: on right attention this test "
        "said yes in 95 % [83, 99] of 40 models of 40 rules, on wrong attention in 5 % [1, 14] of "
        "60 models of 60 rules."
    )


@pytest.mark.parametrize(
    ("encoder", "claim", "answers"),
    [
        ("cnn", "c", KNOWN),
        ("lstm", "another", KNOWN),
        ("lstm", "c", KNOWN.iloc[:40]),
    ],
    ids=["another kind of model", "another claim", "no rate on wrong attention"],
)
def test_where_nothing_was_measured_it_says_so(encoder, claim, answers):
    assert track_record("erasure", "word", encoder, claim, answers=answers).words == NONE


@pytest.mark.parametrize(
    ("encoder", "measured", "has_record"),
    [
        ("lstm", "", True),
        ("lstm", "200 passes", False),
        ("lstm", "bfloat16", False),
        ("bert", "", True),
        ("bert", "200 passes", False),
        ("bert", "bfloat16", True),
    ],
)
def test_a_measurement_of_another_kind_has_no_record_but_for_how_minilm_was_measured(
    encoder, measured, has_record
):
    answers = counts((40, 38), (60, 3), encoder=encoder)
    record = track_record("erasure", "word", encoder, "c", measured, answers=answers)
    assert (record.words != NONE) is has_record


def test_of_states_in_context_the_rate_on_wrong_attention_is_unknown():
    answers = counts((40, 38), (60, 0), "state")
    record = track_record("erasure", "state", "lstm", "c", answers=answers)
    assert "40 models of 40 rules. On wrong attention it is unknown" in record.words
    assert not record.supports


def test_without_context_a_state_is_its_word():
    answers = counts((40, 38), (60, 0), "state", encoder="average")
    assert track_record("erasure", "state", "average", "c", answers=answers).supports


def test_where_nothing_was_decided_no_record_is_cited():
    assert line_of(finding(ACROSS)).track_record == ""


WEAK = ((40, 10), (60, 0))
LOOSE = ((40, 40), (60, 30))
GOOD = ((40, 40), (60, 0))
FEW = ((5, 4), (10, 1))
RIGHT_ALONE = ((40, 10), None)
MEETS = Verdict.MEETS
FAILS = Verdict.FAILS
NOT_INFORMATIVE = Verdict.NOT_INFORMATIVE


@pytest.mark.parametrize(
    ("encoder", "measured", "on_yes", "on_no"),
    [
        ("kind0", [GOOD], MEETS, FAILS),
        # too few models to show either
        ("kind0", [FEW], MEETS, FAILS),
        # half of the wrong ones pass: a yes says nothing
        ("kind0", [LOOSE], NOT_INFORMATIVE, FAILS),
        # a quarter of the right ones pass: a no says nothing
        ("kind0", [WEAK], MEETS, NOT_INFORMATIVE),
        ("other", [WEAK, WEAK], MEETS, NOT_INFORMATIVE),
        ("other", [LOOSE, LOOSE, LOOSE], NOT_INFORMATIVE, FAILS),
        ("other", [WEAK, GOOD], MEETS, FAILS),
        # it may be as the one or as the other
        ("other", [WEAK, LOOSE], MEETS, FAILS),
        # one kind of model says nothing of another
        ("other", [WEAK], MEETS, FAILS),
        # of words a rate on wrong attention belongs to it
        ("other", [RIGHT_ALONE, RIGHT_ALONE], MEETS, FAILS),
    ],
)
@pytest.mark.parametrize("numbers", [ABOVE, BELOW], ids=["yes", "no"])
def test_what_was_shown_not_to_tell_decides_nothing_of_this_kind_of_model_nor_of_another(
    monkeypatch, encoder, measured, on_yes, on_no, numbers
):
    tables = [
        counts(right, wrong, encoder=f"kind{number}")
        for number, (right, wrong) in enumerate(measured)
    ]
    monkeypatch.setattr(records, "calibration", lambda: pd.concat(tables))
    verdict = on_yes if numbers is ABOVE else on_no
    shown_on = "this kind of model" if encoder == "kind0" else "every kind of model that was"
    cited = "Track record on models" if encoder == "kind0" else NONE
    line = line_of(finding(numbers), encoder=encoder)
    assert line.verdict == verdict
    assert line.track_record.startswith(cited)
    assert (f"for {shown_on}" in line.reason) == (verdict == NOT_INFORMATIVE)


@pytest.fixture
def audits(monkeypatch, tmp_path):
    """Audits of one claim `a`, by seeds and by the true effect."""
    rows = [
        ("a", 3, 0.0, 0.02),
        ("a", 3, 0.1, 0.4),
        ("a", 3, 0.3, 0.7),
        ("a", 9, 0.0, 0.01),
        ("a", 9, 0.1, 0.9),
        ("a", 9, 0.3, 1.0),
    ]
    table = pd.DataFrame(rows, columns=["claim", "seeds", "effect", "yes"]).assign(models=120)
    table.to_csv(tmp_path / "audits.csv", index=False)
    monkeypatch.setattr(records, "AUDITS", tmp_path / "audits.csv")


@pytest.mark.usefixtures("audits")
@pytest.mark.parametrize(
    "part",
    [
        "from 120 small models",
        "With 3 seeds even a gain of 0.30 is shown in only 70 %",
        "With 9 seeds a gain below 0.10 cannot be shown",
        "at most 2 % said yes",
    ],
)
def test_a_claim_about_trained_models_cites_what_so_many_seeds_show(part):
    assert part in record_of_seeds("a")


@pytest.mark.usefixtures("audits")
def test_of_another_claim_about_trained_models_nothing_was_measured():
    assert record_of_seeds("b") == ""


@pytest.mark.usefixtures("audits")
def test_the_line_of_a_claim_about_trained_models_cites_the_audits():
    needed = finding(ABOVE, *NECESSITY.place, name="a")
    assert line_of(needed, NECESSITY.place).track_record == record_of_seeds("a")


@pytest.mark.parametrize("claim", ["attention_is_needed", "attention_guides", "seeds_attend_alike"])
def test_in_the_shipped_audits_more_seeds_show_smaller_gains_and_hardly_any_yes_is_false(claim):
    audits = pd.read_csv(AUDITS)
    rows = audits[audits["claim"] == claim]
    assert rows[rows["effect"] == 0]["yes"].max() <= 0.05
    largest = rows[rows["effect"] == rows.groupby("cell")["effect"].transform("max")]
    rates = largest.groupby("seeds")["yes"].mean()
    assert rates.loc[3] <= rates.loc[9]
    assert record_of_seeds(claim).startswith("Track record, audits drawn from")
    assert ("a nearness below" in record_of_seeds(claim)) == (claim == "seeds_attend_alike")


def line_of_minilm(heads):
    """The line of words of a MiniLM, asked of its last layer's heads."""
    facts = {"family": "bert", "site": f"layer -1, heads {heads}, pooled"}
    encoder = encoder_of({"model_facts": facts, "training": {"model": {}}})
    placement = finding(ABOVE, name=SHARE_CLAIM.name)
    return line_of(placement, encoder=encoder)


@pytest.mark.parametrize(
    ("decoder", "kind"), [("LabelDecoder", "cnn per label"), ("LinearDecoder", "cnn")]
)
def test_a_model_with_an_attention_for_each_label_is_a_kind_of_its_own(decoder, kind):
    parts = {"encoder": "CNNEncoder", "decoder": decoder}
    model = {part: {"_target_": f"attnprobe.models.{part}s.{name}"} for part, name in parts.items()}
    assert encoder_of({"training": {"model": model}}) == kind


@pytest.fixture
def minilm_record(monkeypatch):
    """The test of words has a track record on MiniLM alone."""
    answers = counts((40, 38), (60, 0), encoder="bert").assign(claim=SHARE_CLAIM.name)
    monkeypatch.setattr(records, "calibration", lambda: answers)


@pytest.mark.usefixtures("minilm_record")
def test_the_verdict_of_a_minilm_audit_cites_the_record_of_minilm():
    record = line_of_minilm("all").track_record
    assert record.startswith("Track record on MiniLM fine-tuned on the same rules, asked in bf")
    assert "of 40 models of 40 rules" in record


@pytest.mark.usefixtures("minilm_record")
def test_nothing_goes_by_the_record_of_one_checkpoint():
    line = line_of_minilm("all")
    assert line.verdict == Verdict.MEETS
    assert not line.ticked


@pytest.mark.usefixtures("minilm_record")
def test_of_one_head_nothing_was_measured():
    assert line_of_minilm("3").track_record == NONE


@pytest.mark.parametrize(("encoder", "tells"), [("bert", True), ("lstm", False)])
def test_a_loose_test_of_one_checkpoint_does_not_take_the_yes_away(encoder, tells):
    loose = counts((40, 38), (60, 30), encoder=encoder)
    assert track_record("erasure", "word", encoder, "c", answers=loose).yes_tells is tells
