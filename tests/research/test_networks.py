"""Serrano & Smith's networks: what runs and earlier runs say of each, and what it comes to."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.evidence.verdicts import Answer
from attnprobe.readings.registry import readings
from research.papers import networks
from research.papers.__main__ import main
from research.papers.networks import CONCLUSIONS, FLIPS, Network, Said, Setup
from tests.invented_runs import invented_run

PAGE = Path(__file__).parents[2] / "docs/results/serrano_smith.md"
RECORD = PAGE.parent / "networks.csv"
PUBLISHED, NULL = "top_flips_more_than_random", "top_state_flips"
EVEN = dict.fromkeys(FLIPS, 0.25)


def network(model, texts="test 500", flips=EVEN, **answers):
    said = {claim: Said(Answer(answer), 0.5, 0.25, 0.75) for claim, answer in answers.items()}
    return Network(Setup("agnews", model, texts, epochs=6), said, flips)


def test_a_conclusion_remains_where_it_is_a_yes_under_the_null_too():
    asked = [
        network("a", **{PUBLISHED: "yes", NULL: "yes"}),
        network("b", **{PUBLISHED: "yes", NULL: "no"}),
        network("c", **{PUBLISHED: "no", NULL: "yes"}),
        network("d", **{PUBLISHED: "yes"}),  # not asked under the null
    ]
    row = networks.conclusions(asked).iloc[0]
    assert row["networks"] == 3
    assert row["as published"] == "2 yes, 1 no"
    assert row["under the null"] == "2 yes, 1 no"
    assert row["remains"] == "1 of 2"


def test_every_claim_of_a_conclusion_is_one_that_a_probe_makes():
    names = {claim.name for reading in readings().values() for claim in reading.claims}
    for conclusion in CONCLUSIONS:
        assert {conclusion.published, conclusion.under_null} <= names


def test_runs_without_the_papers_probe_are_no_networks(tmp_path):
    invented_run(tmp_path, "run")
    assert networks.read_networks([str(tmp_path)]) == []
    assert networks.networks_part([]) == "No network was run."


def test_a_network_that_is_run_again_replaces_what_the_record_has_of_it(tmp_path):
    before = [network("a", **{NULL: "no"}), network("b", **{NULL: "yes"})]
    again = network("a", texts="test 1,000", **{NULL: "open"})
    joined = networks.with_record([again], before)
    assert [each.setup.model for each in joined] == ["a", "b"]
    assert joined == [again, before[1]]


def test_a_record_says_what_the_networks_said(tmp_path):
    flips = {**EVEN, "top only": 0.125, "n": 480.0}
    said = network("a", flips=flips, **{PUBLISHED: "yes", NULL: "open"})
    without_number = Said(Answer.NO)
    said = replace(said, said={**said.said, NULL: without_number})
    path = tmp_path / "networks.csv"
    networks.write_record([said], path)
    (read,) = networks.read_record(path)
    assert read.setup == said.setup
    assert read.flips == said.flips
    assert read.said[PUBLISHED] == said.said[PUBLISHED]
    assert read.said[NULL].answer is Answer.NO
    assert np.isnan(read.said[NULL].value)
    assert read.text(NULL) == "no"
    assert read.text("top_word_flips") == "–"


def test_a_table_of_something_else_is_no_record(tmp_path):
    path = tmp_path / "other.csv"
    path.write_text("data,model\nagnews,a\n", encoding="utf-8")
    with pytest.raises(UserError, match="expected the columns data, model, texts, epochs, about"):
        networks.read_record(path)


def test_the_shipped_page_is_that_of_the_shipped_record(tmp_path):
    page = Path(shutil.copy(PAGE, tmp_path))
    record = Path(shutil.copy(RECORD, tmp_path))
    main(["--networks", str(page), "--networks-record", str(record)])
    assert page.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")
    assert record.read_bytes() == RECORD.read_bytes()


def test_a_record_of_networks_needs_their_page(capsys):
    with pytest.raises(SystemExit):
        main(["--networks-record", "networks.csv"])
    assert "--networks-record goes with --networks PAGE" in capsys.readouterr().err
