import itertools
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from attnprobe.__main__ import CONFIGURATION
from attnprobe.core.metrics import declared
from attnprobe.models.performance import (
    ASKED_LABELS,
    ONE_CLASS,
    PERFORMANCE,
    SEVERAL_LABELS,
    TRAINING,
)
from attnprobe.probes.__main__ import blocks, filled, probes
from attnprobe.probes.adversarial import SEARCHED
from attnprobe.probes.base import LINEAR
from attnprobe.probes.erasure import WINS
from attnprobe.results.directory import COLUMNS, SITE, RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.collecting import MASSES
from attnprobe.runs.run import run
from tests.probes.test_sites import OF_EVERY_SITE
from tests.small_runs import FEW_PASSES, SMALL, SMALL_ADVERSARY, composed, small_run

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
PROBES = sorted(
    path.stem for path in (CONFIGURATION / "probe").glob("*.yaml") if path.stem != "sites"
)
OF_LABELS = "labels"
"""The probe of rows that ask for labels."""
OF_TEXTS = [probe for probe in PROBES if probe != OF_LABELS]
WHOLE_SPLIT = {"performance": PERFORMANCE, "training": TRAINING}


def names_in(heading):
    """What is named first in the lines of the table below a heading (None: of the first one), up to
    the next heading."""
    if heading is None:
        text, *_ = PAGE.split("## The long table")
    else:
        _, from_heading = PAGE.split(f"\n{heading}\n", 1)
        text, *_ = re.split(r"^##+ ", from_heading, maxsplit=1, flags=re.M)
    names = []
    for line in text.splitlines():
        if line.startswith("| `"):
            _, first_cell, *_ = line.split("|")
            names += re.findall(r"`([^`]+)`", first_cell)
    return names


def metrics_of(probe):
    return WHOLE_SPLIT[probe] if probe in WHOLE_SPLIT else probes()[probe].metrics


def written_in(results, probe):
    rows = results[results["probe"] == probe]
    names = map(str, rows["metric"].unique())
    return {name: declared(name, metrics_of(probe)) for name in names}


def always(probe, *conditions):
    return {metric.name for metric in metrics_of(probe) if metric.only in ("", *conditions)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A run of every probe on the testbed, which has rationales, with all that can be switched
    on."""
    output = tmp_path_factory.mktemp("runs")
    texts = "data.source.test_size=16"
    teacher = run(small_run(output, texts, "seed=1", probes="[]"))
    importances = (
        "[attention,gradient,gradient_input]"  # every importance has the same metrics there
    )
    settings = (
        texts,
        *SMALL_ADVERSARY,
        *FEW_PASSES,
        "probe.erasure.wins=true",
        f"teacher={teacher}",
        "training.epochs=8",
        "training.recipe.optimizer.lr=0.02",  # enough training that some decisions flip
        f"probe.agreement_matrix.importances={importances}",
        f"probe.sanity.importances={importances}",
        "probe.soft_erasure.samples=2",
    )
    return run(small_run(output, *settings, probes=f"[{','.join(OF_TEXTS)}]"))


@pytest.fixture(scope="module")
def results(directory):
    return read_results(directory)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A run with the figures of a single probe: those of all of them take half of such a run."""
    output = tmp_path_factory.mktemp("drawn")
    return run(small_run(output, "figures=true", probes="[correlation]"))


def test_the_page_has_what_the_probes_declare():
    """After a change: python -m attnprobe.probes docs/reference.md"""
    assert filled(PAGE, blocks()) == PAGE
    assert set(re.findall(r"<!-- metrics of (\w+) -->", PAGE)) == set(blocks())
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.M)) == {
        "performance",
        "training",
        "sites",
        *PROBES,
    }
    assert set(probes()) == {"sites", *PROBES}
    # every part in braces is explained
    parts = {part for table in blocks().values() for part in re.findall(r"\{\w+\}", table)}
    assert parts == set(names_in("## Metrics"))


@pytest.mark.parametrize("probe", ["performance", "training", *OF_TEXTS])
def test_a_run_with_everything_writes_what_is_declared_and_nothing_else(results, directory, probe):
    written = written_in(results, probe)
    assert {metric.name for metric in written.values()} == always(
        probe, ONE_CLASS, SEARCHED, LINEAR, WINS
    )
    manifest = RunDirectory(directory).manifest()["tables"][probe]["metrics"]
    assert manifest == {name: metric.facts for name, metric in written.items()}
    for metric, rows in results[results["probe"] == probe].groupby("metric", observed=True):
        fact = written[str(metric)]
        values = rows["value"].dropna()
        has_step = rows["step"].notna()
        assert has_step.all() == has_step.any() == bool(fact.step), metric
        # the bounds as the manifest has them, not by the code that checks them while writing
        low, high = (manifest[metric][end] for end in ("low", "high"))
        assert low is None or values.min() >= low - 1e-9 or values.empty, metric
        assert high is None or values.max() <= high + 1e-9 or values.empty, metric


def test_of_several_labels_other_shares_are_written(tmp_path):
    path = tmp_path / "labels.jsonl"
    labels = itertools.cycle([["a"], ["b"], ["a", "b"]])
    rows = [{"text": f"word{n % 7} and more", "label": next(labels)} for n in range(60)]
    path.write_text("\n".join(map(json.dumps, rows)))
    data = [
        "data=files",
        f"data.path={path}",
        "data.multi_label=true",
        "data.embedding_size=8",
        "training.epochs=1",
    ]
    output = f"output={tmp_path / 'runs'}"
    settings = composed(*data, "probe=[]", output, "trainer.accelerator=cpu")
    results = read_results(run(settings))
    for probe in ("performance", "training"):
        written = {metric.name for metric in written_in(results, probe).values()}
        assert written == always(probe, SEVERAL_LABELS)
        assert {"exact_match", "validation_exact_match"} & written


def test_of_rows_that_ask_for_labels_further_numbers_are_written(tmp_path):
    sizes = ["data.source.codes=3", "data.source.length=12", "training.epochs=2"]
    results = read_results(
        run(composed("task=labels", *SMALL, *sizes, "probe=[labels]", f"output={tmp_path}"))
    )
    for probe in ("performance", "training", OF_LABELS):
        written = {metric.name for metric in written_in(results, probe).values()}
        assert written == always(probe, ONE_CLASS, ASKED_LABELS), probe


def test_where_the_decoder_is_not_linear_the_marked_ones_are_missing(tmp_path):
    story = ("data=stories", "task=qa", "model.width=8")
    rows = read_results(
        run(small_run(tmp_path, *story, *SMALL_ADVERSARY, probes="[adversarial,erasure]"))
    )
    assert {metric.name for metric in written_in(rows, "adversarial").values()} == always(
        "adversarial", SEARCHED
    )
    erasure = written_in(rows, "erasure")
    assert {metric.name for metric in erasure.values()} == always("erasure")
    assert not [
        name for name in erasure if name.endswith("_contribution")
    ]  # an importance that needs it too


def test_the_metrics_of_layers_and_heads():
    """What the probe yields, without a transformer to ask: its test has one."""
    metrics = {name: declared(name, metrics_of("sites")) for name in OF_EVERY_SITE}
    assert {metric.name for metric in metrics.values()} == always("sites")
    assert {name for name, metric in metrics.items() if metric.step} == {"attention"}


def test_the_page_lists_the_columns_of_a_table_in_whose_order_its_rows_are(results, directory):
    assert names_in("## The long table") == [*COLUMNS, SITE] == list(results.columns)
    table = pq.read_table(directory / "tables" / "correlation.parquet").to_pandas()

    def in_order(column):
        return column.astype(str) if column.name == "metric" else column.fillna(-1)

    order = ["metric", "example_id", "step"]
    assert table.equals(table.sort_values(order, key=in_order, kind="stable"))


def test_the_page_lists_the_files_of_a_run(drawn):
    in_folders = {
        "validation.parquet": "examples/validation.parquet",
        "test.parquet": "examples/test.parquet",
        "*.png": "figures/*.png",
    }
    listed = set()
    for name in names_in(None):
        if name.endswith("/"):
            continue
        pattern = re.sub(r"<\w+>", "*", in_folders.get(name, name))
        files = set(drawn.glob(pattern))
        assert files, pattern
        listed |= files
    assert listed == {path for path in drawn.rglob("*") if path.is_file()}


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_page_lists_the_columns_of_the_examples(directory, split):
    columns = set(names_in("## `examples/<split>.parquet`"))
    columns -= {
        *MASSES,
        "unseen",
        "slice",
        "first_words",
        "pieces",
        "piece_word",
        "piece_attention",
        "words",
        "word_attention",
    }
    examples = read_examples(directory, split=split)
    assert columns == set(examples.columns)
    assert len(examples["attention"][0]) == len(examples["tokens"][0])
