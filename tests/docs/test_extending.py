"""docs/extending.md, carried out: its files are written into an empty folder, its commands run, its claims checked."""

import csv
import json
import re
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hydra import initialize_config_dir
from scipy import stats

import attnprobe
from attnprobe import configuration
from attnprobe.__main__ import CONFIGURATION
from attnprobe.data.testbed import generate_reviews
from attnprobe.errors import UserError
from attnprobe.report import reading, studies
from attnprobe.report.page.build import write_report
from attnprobe.report.publish import publish_study
from attnprobe.report.studies import read_study
from attnprobe.report.tables import write_tables
from attnprobe.report.terminal import headline, print_summary
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results
from attnprobe.running.run import run
from attnprobe.running.settings import taken_up
from attnprobe.schema import importances, resolved
from attnprobe.studies.base import carry_out_study
from tests.runs import SMALL, SMALL_ADVERSARY

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ title=(\S+)\n(.*?)^```$", PAGE, re.M | re.S))
COMMANDS = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.M | re.S)
FOREIGN = ("attnprobe_extra",)
ANY_DATA = tuple(one for one in SMALL if not one.startswith("data.source."))


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """The page's folder, its package importable and as good as installed."""
    folder = tmp_path_factory.mktemp("mine")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    with (folder / "hotels.csv").open("a", newline="") as file:
        rows = [(row["text"], (1, 5)[row["label"]] - row["label"] * (number % 2)) for number, row in reviews()]
        csv.writer(file).writerows(rows)
    connection = sqlite3.connect(folder / "stays.db")
    connection.execute("create table stays (review text, stars integer)")
    connection.executemany("insert into stays values (?, ?)", [*rows, ("neither", 3)])
    connection.commit()
    connection.close()
    # what `pip install` makes of pyproject.toml
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    information = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (information / "entry_points.txt").write_text("\n".join(groups))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        reading.readings.cache_clear()
        yield folder
    for name in [name for name in sys.modules if name.split(".")[0] in FOREIGN]:
        del sys.modules[name]
    reading.readings.cache_clear()


def reviews():
    return enumerate(generate_reviews(150, seed=0))


def composed(overrides):
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        return configuration.composed(["hydra.searchpath=[file://conf]", *overrides])


def command(part):
    """Settings of the one command of the page that has this part."""
    (line,) = [line for line in COMMANDS if part in line]
    program, option, folder, *overrides = shlex.split(line.removeprefix("python -m "))
    assert (program, option, folder) == ("attnprobe", "--config-dir", "conf")
    return overrides


def carried_out(mine, part, settings=SMALL):
    return run(composed([*settings, *command(part), f"output={mine / 'runs'}"]))


@pytest.mark.parametrize(("name", "left_out"), [("hotels", {"label is unseen": 1}), ("stays", {"label is unseen": 0})])
def test_a_data_set(mine, name, left_out):
    manifest = RunDirectory(carried_out(mine, f"data={name}", ANY_DATA)).manifest()
    assert manifest["data"] == name
    assert manifest["classes"] == ["bad", "good"]
    counts = manifest["counts"]
    dropped = sum(counts[split]["dropped"].get("label is unseen", 0) for split in ("train", "validation", "test"))
    assert dropped == left_out["label is unseen"]
    assert counts["test"]["kept"] == pytest.approx(0.2 * 152, abs=1)


def test_a_model(mine):
    directory = carried_out(mine, "model=neighbours", (*SMALL, *SMALL_ADVERSARY))
    results = read_results(directory)
    assert set(results["model"]) == {"neighbours_cosine"}
    assert {"permutation", "adversarial", "leave_one_out"} <= set(results["probe"])
    assert results.loc[results["metric"] == "leave_one_out", "value"].notna().all()
    with pytest.raises(UserError, match=r"asks for attnprobe_extra\..*outside the trusted"):
        attnprobe.load_run(directory)
    with pytest.raises(UserError, match=r"trusted=\[attnprobe_extra\]"):
        taken_up(composed([f"run={directory}"]), [f"run={directory}"])
    trained = attnprobe.load_run(directory, trusted=FOREIGN)
    (attention,) = trained.explain(["the film was good"])["attention"]
    assert sum(attention) == pytest.approx(1)


def test_the_test_of_the_page(mine):
    done = {}
    exec(FILES["test_neighbours.py"], done)
    done["test_padding_changes_no_state"]()


@pytest.fixture(scope="module")
def probed(mine):
    return carried_out(mine, "sufficiency.keep")


def test_a_probe(mine, probed):
    results = read_results(probed, probe="sufficiency")
    wide = results[results["step"].isna()].pivot(index="example_id", columns="metric", values="value")
    assert wide[["tvd_top", "tvd_random"]].min().min() >= 0
    assert set(np.unique(wide[["same_top", "same_random"]])) <= {0, 1}
    kept = results[results["metric"] == "kept"].groupby("example_id")["value"]
    np.testing.assert_allclose(kept.sum(), 1)
    assert (kept.agg(lambda values: (values > 0).sum()) == 2).all()  # keep=2
    with pytest.raises(Exception, match=r"probe\.sufficiency\.keep=0: expected 1 or more"):
        run(composed([*SMALL, "probe=[sufficiency]", "probe.sufficiency.keep=0", f"output={mine / 'refused'}"]))


def test_its_reading(mine, probed, capsys):
    results = read_results(probed)
    numbers = headline(results)
    assert numbers["sufficiency/same_top"] == pytest.approx(results.query("metric == 'same_top'")["value"].mean())
    print_summary(results)
    assert "decision stays with the top items alone" in capsys.readouterr().out
    write_tables(probed, mine / "tables")
    assert "keep the decision more often" in (mine / "tables" / "findings.csv").read_text()
    page = write_report([probed], mine / "report.html").read_text()
    assert "do the most attended words decide alone?" in page


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


def test_a_second_reading_of_a_probe_is_refused(mine, monkeypatch):
    class Entry:
        def load(self):
            return reading.Reading("permutation")

    monkeypatch.setattr(reading, "entry_points", lambda group: [Entry()])
    reading.readings.cache_clear()
    with pytest.raises(UserError, match="permutation: two readings of one probe"):
        reading.readings()
    reading.readings.cache_clear()


@pytest.fixture(scope="module")
def weighed(mine):
    return carried_out(mine, "importance.word_length.power")


def test_an_importance(weighed):
    results = read_results(weighed)
    of_length = {str(metric) for metric in results["metric"].unique() if str(metric).endswith("_word_length")}
    assert {
        "tau_attention_word_length", "tau_shuffled_word_length", "top_in_rationale_word_length",
        "flip_top_word_length", "removed_count_word_length", "regret_word_length",
    } <= of_length  # fmt: skip
    texts = attnprobe.read_examples(weighed).set_index("example_id")
    tau = results[results["metric"] == "tau_attention_word_length"].set_index("example_id")["value"]
    words = set(json.loads((weighed / "vocabulary.json").read_text()))
    known = [number for number, tokens in texts["tokens"].items() if set(tokens) <= words]
    assert known
    for number in known:
        expected = stats.kendalltau(texts["attention"][number], [len(word) for word in texts["tokens"][number]])
        assert tau[number] == pytest.approx(expected.statistic, nan_ok=True)


def test_its_title_stands_in_the_report_without_its_package(mine, weighed, capsys):
    said = RunDirectory(weighed).manifest()["tables"]["erasure"]["importances"]["word_length"]
    assert (said["title"], said["colour"], said["signed"]) == ("length of the word", "#117733", False)
    assert said["settings"]["power"] == 2
    print_summary(read_results(weighed))
    printed = " ".join(capsys.readouterr().out.split())
    for words in ("tau(attention, length of the word)", "share removed: length of the word",
                  "top token in the rationale, length of", "JS(top by length of the word)"):  # fmt: skip
        assert words in printed
    write_tables(weighed, mine / "tables3")
    # whether any of thirty texts can flip at all, and is in the rankings' table, depends on the training
    assert "length of the word" in "".join(path.read_text() for path in (mine / "tables3").glob("*.csv"))
    assert "length of the word" in write_report([weighed], mine / "report3.html").read_text()


def test_it_explains_new_texts(weighed):
    with pytest.raises(UserError, match=r"asks for attnprobe_extra\..*outside the trusted"):
        attnprobe.load_run(weighed)
    trained = attnprobe.load_run(weighed, trusted=FOREIGN)
    explained = trained.explain(["the film was good"], importance=["word_length"])
    lengths = [len(word) ** 2 for word in ("the", "film", "was", "good")]
    assert explained["word_length"][0] == lengths
    assert "length of the word" in explained._repr_html_()


def test_scores_from_a_file(mine, monkeypatch, tmp_path):
    probed = run(composed([*SMALL, "probe=[]", f"output={tmp_path}"]))
    monkeypatch.setattr(sys, "argv", ["score_texts.py", str(probed)])
    exec(FILES["score_texts.py"], {})
    overrides = [one.replace("DIRECTORY", str(probed)) for one in command("importance.file.path")]
    run(taken_up(composed([*overrides, "figures=false"]), overrides))
    results = read_results(probed)
    texts = attnprobe.read_examples(probed).set_index("example_id")
    tau = results[results["metric"] == "tau_attention_file"].set_index("example_id")["value"]
    assert len(tau) == len(texts)
    for number, tokens in texts["tokens"].items():
        expected = stats.kendalltau(texts["attention"][number], [len(word) for word in tokens]).statistic
        assert tau[number] == pytest.approx(expected, nan_ok=True)
    assert "length by another tool" in write_report([probed], tmp_path / "report.html").read_text()

    examples = attnprobe.read_examples(probed)
    examples["letters"] = [[sum(map(str.isalpha, word)) for word in words] for words in examples["tokens"]]
    examples[["example_id", "letters"]].to_json(mine / "letters.jsonl", orient="records", lines=True)
    overrides = [f"run={probed}", "probe=[plausibility]", "importances=[attention,by_letters,file]",
                 "importance.file.path=scores.parquet"]  # fmt: skip
    run(taken_up(composed(overrides), overrides))
    said = RunDirectory(probed).manifest()["tables"]["plausibility"]["importances"]
    assert (said["by_letters"]["title"], said["by_letters"]["name"]) == ("letters in the word", "by_letters")
    assert said["file"]["title"] == "scores from a file"


def test_an_installed_package_needs_nothing_but_its_entry_point(mine, tmp_path):
    """Installed by pip into an empty folder and run from another one, in processes of their own, through to the page."""
    source, target = tmp_path / "source", tmp_path / "target"
    for name in ("pyproject.toml", *(one for one in FILES if one.startswith("attnprobe_extra/"))):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(FILES[name], encoding="utf-8")
    (tmp_path / "elsewhere").mkdir()

    def done(*arguments, path):
        environment = {"PYTHONPATH": str(path), "PATH": "", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
        command = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=tmp_path / "elsewhere", env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert command.returncode == 0, command.stderr
        return command.stdout

    done("pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(target),
         str(source), path="")  # fmt: skip
    assert list(target.glob("attnprobe_extra-*.dist-info"))
    (line,) = re.findall(r"^python -m attnprobe (.*importances=\[attention,word_length\].*)$", PAGE, re.M)
    printed = done("attnprobe", *SMALL, *shlex.split(line), "output=runs", path=target)
    assert "length of the word" in " ".join(printed.split())
    (directory,) = (tmp_path / "elsewhere/runs/testbed").iterdir()
    assert {"tau_attention_word_length", "removed_fraction_word_length"} <= set(read_results(directory)["metric"])
    done("attnprobe.report", "runs", "--output", "page.html", path="")  # where nobody knows the package
    assert "length of the word" in (tmp_path / "elsewhere/page.html").read_text()


def test_the_settings_of_an_entry_point_are_its_defaults(mine, monkeypatch):
    class Entry:
        name, value = "length", "attnprobe_extra.lengths:WordLength"

    monkeypatch.setattr(importances, "entry_points", lambda group: [Entry()])
    config = composed(["importances=[attention,length]", "probe=[correlation]"])
    assert resolved(config)["importance"]["length"] == {"_target_": "attnprobe_extra.lengths.WordLength"}
    with pytest.raises(UserError, match=r"importances: lenght: there is no such importance; did you mean length\?"):
        resolved(composed(["importances=[lenght]"]))


def test_a_study(mine, monkeypatch, capsys):
    overrides = [*SMALL, *command("+experiment=widths"), f"output={mine / 'runs'}"]
    directory = carry_out_study(overrides, composed)
    members = json.loads((directory / "study.json").read_text())["members"]
    assert [(one["role"], one["parameter"]) for one in members] == [("base", None), ("width", 64)]
    found = read_study(directory)
    (table,) = found.tables.values()
    assert table["width"].tolist() == [64]
    (finding,) = found.findings
    assert finding.evidence.value == pytest.approx(0.1 - table["JSD"][0])
    publish_study(directory)
    assert found.title in (directory / "report.html").read_text()
    assert "stability: The attention is" in capsys.readouterr().out
    monkeypatch.setattr(studies, "entry_points", lambda group: [])
    with pytest.raises(UserError, match="of the study 'widths': expected one of audit, calibration, wiegreffe"):
        read_study(directory)


def test_the_command_line_itself(mine):
    """All of it at once, in a process of its own, with nothing but PYTHONPATH and --config-dir."""
    settings = [*ANY_DATA, "data=stays", "model=neighbours", "model/attention=cosine", "probe=[sufficiency]"]
    done = subprocess.run(
        [sys.executable, "-m", "attnprobe", "--config-dir", "conf", *settings, "output=elsewhere"],
        cwd=mine, env={"PYTHONPATH": ".", "PATH": "", "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "decision stays with the top items alone" in done.stdout
    assert "results: elsewhere/stays/neighbours_cosine-seed0-" in done.stdout


def test_every_file_of_the_page_was_used(mine):
    """A command for each of its settings, and no file without a place."""
    settings = {name for name in FILES if name.startswith("conf/")}
    used = " ".join(COMMANDS)
    for name in settings - {"conf/probe/sufficiency.yaml", "conf/importance/by_letters.yaml"}:
        assert f"{Path(name).stem}" in used, name
    assert len(FILES) == len(re.findall(r"^```\w+ title=", PAGE, re.M))
