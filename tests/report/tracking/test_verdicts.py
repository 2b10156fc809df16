"""Verdicts and findings on W&B, read back from a saved offline run."""

import json
from pathlib import Path

import pandas as pd
import pytest

from attnprobe.evidence.evidence import NOT_TESTED
from attnprobe.findings import findings
from attnprobe.report import tracking as log
from attnprobe.results.table import read_results
from tests.report.tracking.sent import finished_records, of_kind, summary_of


def table_of(written, name):
    """The rows of a logged table, by its file in W&B's own artifacts."""
    (file,) = {
        Path(entry.local_path)
        for artifact in of_kind(written, "artifact")
        for entry in artifact.manifest.contents
        if entry.path == f"{name}.table.json"
    }
    content = json.loads(file.read_text(encoding="utf-8"))
    return pd.DataFrame(content["data"], columns=content["columns"])


def test_verdicts_and_findings_are_read_back_from_tables_summary_notes_and_definitions(make_run, offline, no_figures):
    run = make_run(count=60, names=["bad", "good"])
    log.log_run(run, project="attention", mode="offline")
    written = finished_records(next(run.glob("wandb/offline-run-*/*.wandb")))
    known = findings(run)
    lines = [*known[known["primary"]].itertuples(index=False)]
    rows = table_of(written, "tables/verdicts").set_index(["criterion", "level"])
    assert [rows.loc[(line.criterion, line.level), "verdict"] for line in lines] == [line.verdict for line in lines]
    summary = summary_of(run)
    tested = [line for line in lines if line.verdict != NOT_TESTED]
    assert tested
    for line in tested:
        name = f"verdict/{line.criterion}/{line.level}"
        assert summary[name,] == line.verdict
        assert summary[f"{name}_value",] == line.value
    found = table_of(written, "tables/findings").set_index("claim")
    of_search = found.loc["the_search_falls_short"]
    table = read_results(run, probe="adversarial").pivot_table(index="example_id", columns="metric", values="value")
    assert of_search["value"] == pytest.approx((table["optimum_jsd"] - table["found_jsd"]).mean(), rel=0.2)
    assert of_search["low"] < of_search["value"] < of_search["high"]
    # what the settings of W&B's table of runs are made of: no cell of it is long, no curve has a number that stands for none
    assert all(len(value) <= 250 for value in summary.values() if isinstance(value, str))
    notes = [part.notes for part in of_kind(written, "run") if part.notes]
    assert notes[-1:] == [f"{known['chip'].iloc[0]}. {known['sentence'].iloc[0]}"]
    defined = {metric.glob_name: metric for metric in of_kind(written, "metric")}
    assert defined["train/*"].step_metric == defined["validation/*"].step_metric == "epoch"
    assert defined["verdict/*"].summary.last
