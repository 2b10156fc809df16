"""What a package outside brings stands in tables, figures, page and W&B by its name; nothing in
attnprobe/ knows of it."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from attnprobe import read_examples
from attnprobe.core.errors import UserError
from attnprobe.findings.studies import base as studies
from attnprobe.findings.studies.base import read_study
from attnprobe.report.page.build import write_report
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from attnprobe.runs.studies import carry_out_study
from tests.docs.extending import ANY_DATA, FILES, composed
from tests.report.tracking.sent import everything_sent, history_of, of_kind, of_run, summary_of
from tests.test_layout import PACKAGE

TITLES = ("length of the word", "time looked at")
FOREIGN_PARTS = (
    "data=watched",
    "model=neighbours",
    "model/attention=cosine",
    "probe=[correlation,erasure,sufficiency]",
    "importances=[attention,gradient,word_length,looking_time]",
)


@pytest.fixture(scope="module")
def foreign_run(mine):
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CACHE", "DATA"):
            patch.setenv(f"WANDB_{name}_DIR", str(mine / f"wandb-{name.lower()}"))
        logger = ("logger=wandb", "logger.mode=offline", "logger.log_text=true")
        return run(composed([*ANY_DATA, *FOREIGN_PARTS, *logger, f"output={mine / 'runs'}"]))


@pytest.fixture(scope="module")
def study(mine):
    parts = [
        setting for setting in FOREIGN_PARTS if not setting.startswith(("probe", "importances"))
    ]
    settings = [
        *ANY_DATA,
        *parts,
        "+experiment=widths",
        "study.widths=[8]",
        f"output={mine / 'runs'}",
    ]
    return carry_out_study(settings, composed)


def test_the_package_knows_none_of_them():
    package = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    names = [
        re.search(r"^class (\w+)", text, re.M)[1]
        for name, text in FILES.items()
        if "class " in text
    ]
    assert len(names) == 8
    for name in (*names, "looking_time", "word_length"):
        assert name not in package, name


def test_the_tables_hold_each(foreign_run):
    results = read_results(foreign_run)
    assert (set(results["data"]), set(results["model"])) == ({"watched"}, {"neighbours_cosine"})
    metrics = set(results["metric"])
    assert {"same_top", "tau_attention_word_length", "removed_fraction_looking_time"} <= metrics
    # the column's own numbers reached the importance: τ with them is scipy's
    texts = read_examples(foreign_run).set_index("example_id")
    rows = map(json.loads, (foreign_run.parents[2] / "watched.jsonl").read_text().splitlines())
    times = {row["review"]: row["milliseconds"] for row in rows}
    tau = results[results["metric"] == "tau_attention_looking_time"].set_index("example_id")[
        "value"
    ]
    assert len(tau) == len(texts)
    for number, row in texts.iterrows():
        expected = stats.kendalltau(row["attention"], times[" ".join(row["tokens"])]).statistic
        assert tau[number] == pytest.approx(expected, nan_ok=True)


def test_the_page_shows_each(mine, foreign_run, study):
    page = write_report([foreign_run, study], mine / "zero.html").read_text(encoding="utf-8")
    for words in (
        "watched",
        "neighbours_cosine",
        "do the most attended words decide alone?",
        *TITLES,
        "does the width change where neighbours_cosine attends?",
    ):
        assert words in page, words
    assert "by the width of the encoder" in page
    assert (mine / "zero_files" / "study1-widths.pdf").is_file()
    tables = "".join(
        path.read_text(encoding="utf-8") for path in (mine / "zero_files").glob("*.csv")
    )
    assert "keep the decision more often" in tables
    assert all(title in tables for title in TITLES)


def test_wandb_is_sent_each(mine, foreign_run):
    written = of_run(foreign_run)
    start, *_ = of_kind(written, "run")
    assert {"watched", "neighbours_cosine", "sufficiency"} <= set(start.tags)
    config = {item.key: json.loads(item.value_json) for item in start.config.update}
    assert config["model"]["encoder"]["_target_"] == "attnprobe_extra.encoders.NeighbourEncoder"
    assert config["data"]["per_word"] == {"milliseconds": "milliseconds"}
    history = history_of(written)
    numbers = {key[0] for key in (*summary_of(foreign_run), *history)}
    assert {"sufficiency/same_top", "correlation/tau_attention_word_length"} <= numbers
    assert history["tables/sufficiency", "_type"] == "table-file"
    assert history["figures/erasure_boxes", "_type"] == "image-file"
    assert b"time looked at" in everything_sent(foreign_run, mine / "wandb-data")


def test_the_study_is_read(study, monkeypatch):
    members = json.loads((study / "study.json").read_text())["members"]
    assert [(member["role"], member["parameter"]) for member in members] == [
        ("base", None),
        ("width", 8),
    ]
    reading = read_study(study)
    (table,) = reading.tables.values()
    assert table["width"].tolist() == [8]
    (finding,) = reading.findings
    assert finding.evidence.value == pytest.approx(0.1 - table["JSD"][0])
    assert np.isfinite(finding.evidence.value)
    monkeypatch.setattr(studies, "entry_points", lambda group: [])
    with pytest.raises(
        UserError, match=r"of the study 'widths': expected one of audit, [a-z, ]*wiegreffe"
    ):
        read_study(study)
