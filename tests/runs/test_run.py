import json
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal

from attnprobe.core.errors import UserError
from attnprobe.probes.permutation import Permutation
from attnprobe.results.directory import COLUMNS, SITE, RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs import run as run_module
from attnprobe.runs.run import run
from tests.small_runs import SMALL_ADVERSARY, composed, small_run

BOTH = "[permutation,adversarial]"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(
        small_run(tmp_path_factory.mktemp("runs"), *SMALL_ADVERSARY, "figures=true", probes=BOTH)
    )


def files(directory, pattern="tables/*.parquet"):
    return {path.name: path.read_bytes() for path in sorted(directory.glob(pattern))}


def test_a_finished_run_holds_everything(finished):
    names = {str(path.relative_to(finished)) for path in finished.rglob("*") if path.is_file()}
    assert names >= {
        "config.yaml",
        "manifest.json",
        "model.safetensors",
        "vocabulary.json",
        "examples/test.parquet",
        "tables/performance.parquet",
        "tables/permutation.parquet",
        "tables/adversarial.parquet",
        "tables/training.parquet",
        "figures/permutation.pdf",
        "figures/adversarial_heatmaps.png",
    }
    assert not any("partial" in name or "checkpoint" in name for name in names)
    manifest = RunDirectory(finished).manifest()
    results = read_results(finished)
    assert tuple(results.columns) == (*COLUMNS, SITE)
    assert set(results["run_id"]) == {manifest["run_id"]}
    assert manifest["counts"]["test"]["kept"] == 30
    for probe, entry in manifest["tables"].items():
        assert entry["rows"] == (results["probe"] == probe).sum()
    curve = results[results["metric"] == "validation_roc_auc"]
    assert curve["step"].tolist() == [0, 1]
    assert set(curve["split"]) == {"validation"}


def test_examples_and_tables_speak_of_the_same_attention(finished):
    examples = read_examples(finished).set_index("example_id")
    assert len(examples) == 30
    results = read_results(finished, probe="adversarial")
    largest = results[results["metric"] == "max_attention"].set_index("example_id")["value"]
    positions = (
        results[results["metric"] == "optimum_attention"]
        .groupby("example_id", observed=True)
        .size()
    )
    for example_id, row in examples.iterrows():
        assert len(row["tokens"]) == len(row["attention"]) == positions[example_id]
        assert sum(row["attention"]) == pytest.approx(1, abs=1e-5)
        assert max(row["attention"]) == pytest.approx(largest[example_id], abs=1e-6)
        assert row["prediction"] == np.argmax(row["probability"])
    performance = read_results(finished, probe="performance").set_index("metric")["value"]
    assert performance["accuracy"] == pytest.approx(
        (examples["label"] == examples["prediction"]).mean()
    )


def test_the_same_seed_gives_the_same_bytes(finished, tmp_path):
    again = run(small_run(tmp_path, *SMALL_ADVERSARY, probes=BOTH))
    assert files(again) == files(finished)
    assert files(again, "examples/*") == files(finished, "examples/*")
    assert (again / "model.safetensors").read_bytes() == (
        finished / "model.safetensors"
    ).read_bytes()
    second_seed = run(small_run(tmp_path, *SMALL_ADVERSARY, "seed=1", probes=BOTH))
    assert files(second_seed)["permutation.parquet"] != files(finished)["permutation.parquet"]


def test_batch_size_changes_no_number(finished, tmp_path):
    directory = run(small_run(tmp_path, *SMALL_ADVERSARY, "data.eval_batch_size=1", probes=BOTH))
    single = read_results(directory)
    batched = read_results(finished)
    assert_frame_equal(single.drop(columns="value"), batched.drop(columns="value"))
    assert_allclose(single["value"], batched["value"], atol=1e-6)


def test_a_finished_run_is_measured_anew_without_training(finished, tmp_path):
    directory = tmp_path / "run"
    shutil.copytree(finished, directory)
    weights = (directory / "model.safetensors").stat().st_mtime_ns
    (directory / "tables" / "permutation.parquet").write_bytes(b"of an older version")
    again = small_run(
        tmp_path, f"run_dir={directory}", "on_finished=remeasure", probes="[permutation]"
    )
    assert run(again) == directory
    # the named probe has the same bytes as before, and all other files are untouched
    assert files(directory) == files(finished)
    assert (directory / "model.safetensors").stat().st_mtime_ns == weights
    before = RunDirectory(finished).manifest()
    now = RunDirectory(directory).manifest()
    assert now["tables"].keys() == before["tables"].keys()
    assert now["tables"]["adversarial"] == before["tables"]["adversarial"]


def test_a_finished_run_is_refused_skipped_or_replaced(tmp_path):
    config = small_run(tmp_path)
    directory = run(config)
    before = (directory / "manifest.json").stat().st_mtime_ns
    with pytest.raises(UserError, match=r"already holds this finished run .*on_finished=replace"):
        run(config)
    assert run(config, sweep=True) == directory
    assert run(small_run(tmp_path, "on_finished=skip")) == directory
    assert (directory / "manifest.json").stat().st_mtime_ns == before
    assert run(small_run(tmp_path, "on_finished=replace")) == directory
    assert (directory / "manifest.json").stat().st_mtime_ns > before
    with pytest.raises(UserError, match="on_finished=maybe"):
        run(small_run(tmp_path, "on_finished=maybe"))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("+data.filters.label=[positive]", "no row of the train split is left"),
        ("training.recipe.optimizer.lr=1e30", "loss became"),
    ],
    ids=["the data cannot be used", "the training diverges"],
)
def test_a_replacement_that_fails_leaves_the_finished_run(tmp_path, setting, message):
    directory = run(small_run(tmp_path, f"run_dir={tmp_path / 'mine'}"))
    content = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    replacement = [f"run_dir={tmp_path / 'mine'}", "on_finished=replace", setting]
    with pytest.raises(UserError, match=message):
        run(small_run(tmp_path, *replacement, "training.recipe.optimizer.fused=false"))
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == content


def test_a_replacement_leaves_nothing_of_the_run_before(tmp_path):
    """Neither its tables nor its lists: its weights are others'."""
    place = f"run_dir={tmp_path / 'mine'}"
    directory = run(small_run(tmp_path, place, probes="[permutation,single_weight]"))
    run(small_run(tmp_path, place, "seed=1", "on_finished=replace"))
    tables = {path.stem for path in (directory / "tables").iterdir()}
    assert tables == {"permutation", "performance", "training"}
    assert RunDirectory(directory).manifest()["seed"] == 1
    RunDirectory(directory).verify()


def test_a_chosen_directory_with_another_run_is_refused_and_the_difference_named(tmp_path):
    directory = run(small_run(tmp_path, f"run_dir={tmp_path / 'mine'}"))
    content = {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"training\.epochs: 2 there, 3 here"):
        run(small_run(tmp_path, f"run_dir={tmp_path / 'mine'}", "training.epochs=3"))
    assert {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()} == content


@pytest.mark.parametrize("policy", ["error", "replace"])
def test_a_directory_of_somebody_else_is_left_alone(tmp_path, policy):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="not a run of attnprobe"):
        run(small_run(tmp_path, f"run_dir={tmp_path / 'mine'}", f"on_finished={policy}"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_place_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match=r"cannot write to .*/thesis\.txt/"):
        run(small_run(tmp_path / "thesis.txt"))


def test_a_diverging_training_ends_with_one_message_and_leaves_nothing(tmp_path):
    diverging = ["training.recipe.optimizer.lr=1e30", "training.recipe.optimizer.fused=false"]
    with pytest.raises(UserError, match=r"loss became (nan|inf).*training\.recipe\.optimizer\.lr"):
        run(small_run(tmp_path, *diverging))
    assert not list(tmp_path.rglob("*.*"))


def test_a_probe_that_fails_leaves_no_result_but_keeps_the_training(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("out of ideas")
        yield

    with monkeypatch.context() as patched:
        patched.setattr(Permutation, "measure", fail)
        with pytest.raises(RuntimeError, match="out of ideas"):
            run(small_run(tmp_path))
    (state,) = tmp_path.rglob("training.json")
    assert not [*tmp_path.rglob("manifest.json"), *tmp_path.rglob("tables/*")]
    trained = state.stat().st_mtime_ns
    directory = run(small_run(tmp_path))
    assert state.stat().st_mtime_ns == trained
    # a probe is added without training again
    tables = files(directory)
    assert run(small_run(tmp_path, *SMALL_ADVERSARY, probes="[adversarial]")) == directory
    assert state.stat().st_mtime_ns == trained
    assert set(read_results(directory)["probe"]) == {
        "training",
        "performance",
        "permutation",
        "adversarial",
    }
    assert files(directory).items() >= tables.items()


def test_the_csv_logger_writes_the_curve_without_the_metric_of_selection(tmp_path):
    directory = run(small_run(tmp_path, "logger=csv"))
    curves = pd.read_csv(directory / "training" / "metrics.csv")
    assert "validation/roc_auc" in curves
    assert curves.drop(columns=["epoch", "step"]).min().min() >= 0
    assert 0 <= json.loads((directory / "training.json").read_text())["chosen_epoch"] < 2
    assert torch.get_default_dtype() == torch.float32


def several_labels(folder, *overrides):
    """Settings of a run whose texts have one label or two."""
    labels = (["a"], ["b"], ["a", "b"])
    rows = [
        {"text": f"word{number % 7} and more", "label": labels[number % 3]} for number in range(60)
    ]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return composed(
        "data=files",
        f"data.path={folder / 'labels.jsonl'}",
        "data.multi_label=true",
        "data.embedding_size=8",
        "training.epochs=1",
        f"output={folder / 'runs'}",
        "trainer.accelerator=cpu",
        *overrides,
    )


@pytest.mark.parametrize(
    ("make", "overrides", "message"),
    [
        (
            several_labels,
            ["probe=[single_weight]"],
            "probe single_weight asks when one decision flips",
        ),
        (several_labels, ["probe=[erasure]"], "probe erasure asks when one decision flips"),
        (
            several_labels,
            ["training=serrano", "probe=[]"],
            "=accuracy is not measured .* set .*selection_metric=exact_match",
        ),
        (
            partial(small_run, probes="[permutation,agreement]"),
            ["model=hanrnn", "data.sentences=rule"],
            "probe agreement is about single words",
        ),
    ],
)
def test_what_does_not_suit_is_refused_before_training(
    tmp_path, monkeypatch, make, overrides, message
):
    monkeypatch.setattr(run_module, "train", lambda *_: pytest.fail("it was trained"))
    with pytest.raises(UserError, match=message):
        run(make(tmp_path, *overrides))


@pytest.mark.parametrize(
    ("name", "change", "setting"),
    [
        (
            "reviews.csv",
            lambda content: content.translate(str.maketrans({"0": "1", "1": "0"})),
            r"data\.path \(train\)",
        ),
        ("vectors.txt", lambda content: "good 1 3\n", r"data\.vectors"),
    ],
    ids=["labels", "vectors"],
)
def test_a_run_on_changed_inputs_is_never_done(tmp_path, name, change, setting):
    """Nothing is skipped or measured where a file has changed under the same name."""
    rows = [
        f"{word} film number {number},{int(word == 'good')}"
        for number in range(40)
        for word in ("good", "bad")
    ]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    (tmp_path / "vectors.txt").write_text("good 1 2\nbad 3 4\nfilm 5 6\n")
    config = composed(
        "data=files",
        f"data.path={tmp_path / 'reviews.csv'}",
        f"data.vectors={tmp_path / 'vectors.txt'}",
        "training.epochs=1",
        "figures=false",
        "probe=[permutation]",
        f"output={tmp_path / 'runs'}",
        "trainer.accelerator=cpu",
    )
    directory = run(config)
    assert run(config, sweep=True) == directory
    path = tmp_path / name
    before = path.read_text()
    path.write_text(change(before))
    message = f"the content of {setting} has changed since. .*the command that made the run"
    with pytest.raises(UserError, match=message):
        run(config, sweep=True)
    path.write_text(before)
    assert run(config, sweep=True) == directory


def test_a_damaged_table_is_measured_again_and_damaged_weights_are_named(tmp_path, capsys):
    config = small_run(tmp_path)
    directory = run(config)
    tables = files(directory)
    (directory / "tables" / "permutation.parquet").write_bytes(b"PAR1")
    assert run(config, sweep=True) == directory
    assert files(directory) == tables
    assert "permutation.parquet is damaged: it has 4 bytes" in capsys.readouterr().err
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    for sweep in (True, False):
        with pytest.raises(
            UserError, match=r"model\.safetensors is damaged: .*on_finished=replace"
        ):
            run(config, sweep=sweep)
