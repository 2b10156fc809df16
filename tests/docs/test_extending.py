"""docs/extending.md, carried out: its files are written into an empty folder, its commands run, its claims checked."""

import re
from pathlib import Path

import numpy as np
import pytest

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.evidence import reading
from attnprobe.report.page.build import write_report
from attnprobe.report.tables import write_tables
from attnprobe.report.terminal import headline, print_summary
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from attnprobe.runs.settings import resumed
from tests.docs.extending import ANY_DATA, COMMANDS, FILES, FOREIGN, PAGE, carried_out, composed
from tests.runs import SMALL, SMALL_ADVERSARY


@pytest.mark.parametrize(("name", "left_out"), [("hotels", 1), ("stays", 0)])
def test_a_data_set(mine, name, left_out):
    manifest = RunDirectory(carried_out(mine, f"data={name}", ANY_DATA)).manifest()
    assert (manifest["data"], manifest["classes"]) == (name, ["bad", "good"])
    counts = manifest["counts"]
    dropped = sum(counts[split]["dropped"].get("label is unseen", 0) for split in ("train", "validation", "test"))
    assert dropped == left_out
    assert counts["test"]["kept"] == pytest.approx(0.2 * 152, abs=1)


def test_a_model(mine):
    directory = carried_out(mine, "model=neighbours", (*SMALL, *SMALL_ADVERSARY))
    results = read_results(directory)
    assert set(results["model"]) == {"neighbours_cosine"}
    assert {"permutation", "adversarial", "leave_one_out"} <= set(results["probe"])
    assert results.loc[results["metric"] == "leave_one_out", "value"].notna().all()
    with pytest.raises(UserError, match=r"attnprobe_extra\..*outside the trusted"):
        attnprobe.load_run(directory)
    with pytest.raises(UserError, match=r"trusted=\[attnprobe_extra\]"):
        resumed(composed([f"run={directory}"]), [f"run={directory}"])
    trained = attnprobe.load_run(directory, trusted=FOREIGN)
    (attention,) = trained.explain(["the film was good"])["attention"]
    assert sum(attention) == pytest.approx(1)
    exec(FILES["test_neighbours.py"], done := {})  # the page's own test
    done["test_padding_changes_no_state"]()


@pytest.fixture(scope="module")
def probed(mine):
    return carried_out(mine, "sufficiency.keep")


def test_a_probe_and_its_reading(mine, probed, capsys):
    results = read_results(probed, probe="sufficiency")
    wide = results[results["step"].isna()].pivot(index="example_id", columns="metric", values="value")
    assert wide[["tvd_top", "tvd_random"]].min().min() >= 0
    assert set(np.unique(wide[["same_top", "same_random"]])) <= {0, 1}
    kept = results[results["metric"] == "kept"].groupby("example_id")["value"]
    np.testing.assert_allclose(kept.sum(), 1)
    assert (kept.agg(lambda values: (values > 0).sum()) == 2).all()  # keep=2
    assert headline(read_results(probed))["sufficiency/same_top"] == pytest.approx(wide["same_top"].mean())
    print_summary(read_results(probed))
    assert "decision stays with the top items alone" in capsys.readouterr().out
    with pytest.raises(Exception, match=r"probe\.sufficiency\.keep=0: expected .* at least 1"):
        run(composed([*SMALL, "probe=[sufficiency]", "probe.sufficiency.keep=0", f"output={mine / 'refused'}"]))


def test_without_a_reading_the_numbers_are_there_and_nothing_breaks(mine, probed, monkeypatch, capsys):
    monkeypatch.setattr(reading, "entry_points", lambda group: [])
    reading.readings.cache_clear()
    results = read_results(probed)
    assert len(results.query("probe == 'sufficiency' and metric == 'tvd_top'")) == 30
    assert not any(name.startswith("sufficiency") for name in headline(results))
    print_summary(results)
    write_tables(probed, mine / "tables2")
    write_report([probed], mine / "report2.html")
    reading.readings.cache_clear()


def test_every_file_of_the_page_was_used():
    settings = {name for name in FILES if name.startswith("conf/")}
    used = " ".join(COMMANDS)
    for name in settings - {"conf/probe/sufficiency.yaml", "conf/importance/by_letters.yaml"}:
        assert Path(name).stem in used, name
    assert len(FILES) == len(re.findall(r"^```\w+ title=", PAGE, re.M))
