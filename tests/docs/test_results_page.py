"""docs/results.md names every metric that a run writes, with its range and whether it has steps, and no other."""

import json
import math
import re
from itertools import product
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

from attnprobe.__main__ import CONFIGURATION
from attnprobe.results.schema import COLUMNS, SITE
from attnprobe.results.table import read_results
from attnprobe.running.run import run
from tests.probes.test_sites import OF_EVERY_SITE
from tests.runs import SMALL_ADVERSARY, composed, small_run

PAGE = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
PROBES = sorted(path.stem for path in (CONFIGURATION / "probe").glob("*.yaml") if path.stem != "sites")
NUMBERS = {"ln 2": math.log(2), "−ln 2": -math.log(2)}
NO_DESCRIPTION = {"performance", "training", "plausibility", "known_answer"}
LINEAR = "linear decoder only"


def section(heading):
    """The text below a heading, to the next one."""
    return re.split(r"^##+ ", PAGE.split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.M)[0]


def lines_of(text):
    """The cells of a table's lines that begin with a name."""
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("| `")]


def names(cell):
    return re.findall(r"`([^`]+)`", cell)


def documented(probe):
    """Metric → (low, high, has steps, remark) of one probe's section, placeholders filled in."""
    text = section(f"### `{probe}`")
    if probe == "training":
        listed = names(re.search(r"from 0: (.*?)\n\n", text, re.S).group(1))
        metrics = [one for name in listed for one in ([f"{name[:-1]}{c}" for c in "01"] if name[-1] == "C" else [name])]
        return {metric: (0, math.inf if "loss" in metric else 1, True, "") for metric in metrics}
    choices = {
        letter: names(sentence)
        for letter in "XRP"
        for sentence in re.findall(rf"\b{letter} is (?:\w+ )*(.*?)\.\n", text, re.S)
    }
    rows = {}
    # notes of the manifest have a table of two columns
    for shown, unit, steps, remark in (cells for cells in lines_of(text) if len(cells) == 4):
        for name, letter in product(names(shown), "XRP"):
            if re.search(rf"_{letter}$", name):
                rows |= {
                    f"{name[:-1]}{choice}": (*bounds(unit), bool(steps), remark)
                    for choice in choices[letter]
                    if f"not for `{choice}`" not in remark
                }
            elif not re.search(r"_[XRP]$", name):
                rows[name] = (*bounds(unit), bool(steps), remark)
    return rows


def bounds(unit):
    """`nats, 0 to ln 2` → the two numbers."""
    if unit.endswith("0/1"):
        return 0, 1
    if found := re.search(r"(\S*ln 2|−?\d+) to (\S*ln 2|−?\d+)$", unit):
        low, high = (NUMBERS.get(end) or float(end.replace("−", "-")) for end in found.groups())
        return low, high
    if unit.endswith("1 or more"):
        return 1, math.inf
    if unit.endswith("0 or more") or unit in ("count", "class number"):
        return 0, math.inf
    assert unit.endswith("any number"), unit
    return -math.inf, math.inf


def everything(probe, *, other_task="several labels per text"):
    """Metric → (low, high, has steps, remark), without those of the other task."""
    described = {} if probe in NO_DESCRIPTION else documented_description()
    of_other = {metric for metric, fact in documented("performance").items() if fact[-1].startswith(other_task)}
    of_other |= {f"validation_{metric}" for metric in of_other}
    left_out = of_other if probe in ("performance", "training") else set()
    return {metric: fact for metric, fact in (documented(probe) | described).items() if metric not in left_out}


def documented_description():
    text = PAGE.split("### In every probe's table")[1].split("### `performance`")[0]
    return {names(shown)[0]: (*bounds(unit), False, "") for shown, unit, _, _ in lines_of(text)}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """A run of every probe on the testbed, which has rationales, with all that can be switched on."""
    output = tmp_path_factory.mktemp("runs")
    teacher = run(small_run(output, "seed=1", probes="[]"))
    # enough training that some decisions flip
    settings = (*SMALL_ADVERSARY, "probe.erasure.wins=true", f"teacher={teacher}", "figures=true", "training.epochs=8",
                "training.recipe.optimizer.lr=0.02")  # fmt: skip
    return run(small_run(output, *settings, probes=f"[{','.join(PROBES)}]"))


@pytest.fixture(scope="module")
def results(directory):
    return read_results(directory)


@pytest.mark.parametrize("probe", ["performance", "training", *PROBES])
def test_every_metric_is_on_the_page_and_no_other(results, probe):
    rows = results[results["probe"] == probe]
    page = everything(probe)
    assert set(rows["metric"].unique()) == set(page)
    for metric, part in rows.groupby("metric", observed=True):
        low, high, has_steps, _ = page[str(metric)]
        assert part["step"].notna().all() == has_steps, metric
        assert part["step"].notna().any() == has_steps, metric
        values = part["value"].dropna()
        assert values.between(low - 1e-9, high + 1e-9).all(), (metric, values.min(), values.max())


def test_of_several_labels_the_page_lists_other_shares(tmp_path):
    path = tmp_path / "labels.jsonl"
    rows = [{"text": f"word{n % 7} and more", "label": [["a"], ["b"], ["a", "b"]][n % 3]} for n in range(60)]
    path.write_text("\n".join(map(json.dumps, rows)))
    data = ["data=files", f"data.path={path}", "data.multi_label=true", "data.embedding_size=8", "training.epochs=1"]
    found = read_results(run(composed(*data, "probe=[]", f"output={tmp_path / 'runs'}", "trainer.accelerator=cpu")))
    for probe in ("performance", "training"):
        page = set(everything(probe, other_task="one class per text"))
        assert set(found.loc[found["probe"] == probe, "metric"]) == page
        assert {"exact_match", "validation_exact_match"} & page


def test_where_the_decoder_is_not_linear_the_marked_ones_are_missing(tmp_path):
    story = ("data=stories", "task=qa", "model.width=8")
    rows = read_results(run(small_run(tmp_path, *story, *SMALL_ADVERSARY, probes="[adversarial,erasure]")))
    page = everything("adversarial")
    linear = {metric for metric, (*_, remark) in page.items() if remark.endswith(LINEAR)}
    assert set(rows.loc[rows["probe"] == "adversarial", "metric"]) == set(page) - linear
    with_linear_only = {
        metric
        for metric, (*_, remark) in everything("erasure").items()
        if "wins" in metric or "contribution" in metric or metric.endswith("_optimal") or remark.endswith(LINEAR)
    }
    written = set(rows.loc[rows["probe"] == "erasure", "metric"])
    assert written == set(everything("erasure")) - with_linear_only


def test_every_probe_has_its_section():
    assert set(re.findall(r"^### `(\w+)`$", PAGE, re.M)) == {"performance", "training", "sites", *PROBES}


def test_the_metrics_of_layers_and_heads():
    """What the probe yields, without a transformer to ask: its test has one."""
    page = documented("sites")
    assert set(page) - {"auprc_rationale"} == OF_EVERY_SITE
    assert {metric for metric, (_, _, has_steps, _) in page.items() if has_steps} == {"attention"}


def test_the_columns(results, directory):
    listed = [name for cells in lines_of(section("## The long table")) for name in names(cells[0])]
    assert listed == [*COLUMNS, SITE] == list(results.columns)
    table = pq.read_table(directory / "tables" / "correlation.parquet").to_pandas()
    assert table.equals(table.sort_values(["metric", "example_id", "step"], key=in_order, kind="stable"))


def in_order(column):
    return column.astype(str) if column.name == "metric" else column.fillna(-1)


def test_the_files(directory):
    listed = [name for cells in lines_of(PAGE.split("## The long table")[0]) for name in names(cells[0])]
    patterns = [re.sub(r"<\w+>", "*", name) for name in listed if not name.endswith("/")]
    patterns = [
        f"examples/{name}" if name in ("validation.safetensors", "test.safetensors") else name for name in patterns
    ]
    patterns = ["figures/*.png" if name == "*.png" else name for name in patterns]
    there = {path for path in directory.rglob("*") if path.is_file()}
    found = [set(directory.glob(pattern)) for pattern in patterns]
    assert all(found), patterns
    assert set.union(*found) == there


def test_the_examples_and_the_lessons(directory):
    table = pd.read_parquet(directory / "examples" / "test.parquet")
    columns = {name for cells in lines_of(section("## `examples/test.parquet`")) for name in names(cells[0])}
    assert columns - {"words", "word_attention", "special_mass"} == set(table.columns)
    lessons = load_file(directory / "examples" / "test.safetensors")
    tensors = {names(cells[0])[0] for cells in lines_of(section("## `examples/*.safetensors`"))}
    assert tensors == set(lessons)
    start, end = lessons["offsets"][:2]
    assert len(lessons["attention"][start:end]) == len(table["tokens"][0])
