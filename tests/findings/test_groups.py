import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.core.errors import UserError
from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import Evidence
from attnprobe.findings import table
from attnprobe.findings.groups import grouped, read_runs
from attnprobe.results.directory import DamagedRunWarning
from tests.small_runs import seal_again


@pytest.mark.parametrize(
    ("runs", "groups"),
    [
        (
            [(0, {"training": {"epochs": 2}}), (0, {"training": {"epochs": 8}})],
            [("training.epochs=2", [0]), ("training.epochs=8", [0])],
        ),
        (
            [
                (0, {"data": {"vectors": None}}),
                (1, {"data": {"vectors": None}}),
                (2, {"data": {"vectors": "glove"}}),
            ],
            [("data.vectors=None", [0, 1]), ("data.vectors=glove", [2])],
        ),  # other settings are no further seed
        (
            [
                (0, {"data": {"vectors": "/home/ann/a/glove.vec"}}),
                (0, {"data": {"vectors": "/home/ann/b/minilm.vec"}}),
            ],
            [("data.vectors=glove.vec", [0]), ("data.vectors=minilm.vec", [0])],
        ),
        (
            [
                (0, {"data": {"vectors": "/home/ann/a/words.vec"}}),
                (0, {"data": {"vectors": "/home/ann/b/words.vec"}}),
            ],
            [
                ("data.vectors=/home/ann/a/words.vec", [0]),
                ("data.vectors=/home/ann/b/words.vec", [0]),
            ],
        ),  # the file's name does not tell them apart
        ([(0, {"teacher": "sst-lstm-seed0"}), (1, {"teacher": "sst-lstm-seed1"})], [("", [0, 1])]),
    ],
)
def test_settings_tell_runs_apart_and_each_seed_may_have_a_teacher_of_its_own(
    make_run, tmp_path, runs, groups
):
    for number, (seed, training) in enumerate(runs):
        make_run(f"a{number}", seed=seed, training={"seed": seed} | training)
    assert [(group.note, group.seeds) for group in grouped(read_runs(tmp_path))] == groups


def test_models_are_compared_where_their_settings_are_the_same(make_run, tmp_path, monkeypatch):
    for model in ("flanrnn", "flannoenc"):
        for epochs in (2, 8):
            training = {"seed": 0, "training": {"epochs": epochs}}
            make_run(f"{model}{epochs}", model=model, training=training)
    claim = Claim("c", "erasure", "s", "source", lambda table: None, "unit")
    compared = []

    def compare(results):
        compared.append({run["model"] for run in results.runs})
        return [Finding(claim, Evidence(1.0, 0.5, 1.5, 20), "sst", "flanrnn, flannoenc")]

    monkeypatch.setattr(table, "compare_models", compare)
    rows = table.findings(tmp_path)
    assert rows.loc[rows["section"] == "across", "model"].tolist() == [
        "flanrnn, flannoenc · training.epochs=2",
        "flanrnn, flannoenc · training.epochs=8",
    ]
    assert compared == [{"flanrnn", "flannoenc"}] * 2


def test_the_experiment_tells_runs_apart_where_settings_do_not(make_run, tmp_path):
    make_run("c", data="imdb", experiment="jain")
    make_run("d", data="imdb", experiment="serrano")
    assert [group.note for group in grouped(read_runs(tmp_path))] == ["jain", "serrano"]


def test_the_id_tells_runs_apart_where_nothing_else_does(make_run, tmp_path):
    make_run("sst-lstm-seed0-aa")
    make_run("sst-lstm-seed0-bb")
    assert [group.note for group in grouped(read_runs(tmp_path))] == ["aa", "bb"]


def test_a_run_that_is_there_twice_is_named(make_run, tmp_path):
    shutil.copytree(make_run("a"), tmp_path / "copy")
    with pytest.raises(UserError, match=r"run a is there twice, in .*Name one"):
        read_runs(tmp_path)


@pytest.mark.parametrize(
    ("file", "column", "kind", "problem"),
    [
        ("tables/permutation.parquet", "metric", None, "has no column metric"),
        ("tables/permutation.parquet", "value", None, "has no column value"),
        (
            "tables/permutation.parquet",
            "value",
            pa.string(),
            "its column value holds texts, expected numbers",
        ),
        ("examples/test.parquet", "label", None, "has no column label"),
        (
            "examples/test.parquet",
            "attention",
            pa.null(),
            "its column attention holds null, expected lists of numbers",
        ),
    ],
)
def test_a_table_that_was_edited_and_sealed_again_is_named_and_the_other_run_read(
    make_run, tmp_path, file, column, kind, problem
):
    make_run("edited", seed=0)
    make_run("sound", seed=1)
    path = tmp_path / "edited" / file
    table = pq.read_table(path)
    place = table.column_names.index(column)
    edited = table.drop_columns([column])
    if kind is not None:
        values = pa.nulls(len(table), kind)
        edited = edited.add_column(place, column, values)
    pq.write_table(edited, path)
    seal_again(tmp_path / "edited")

    with pytest.warns(
        DamagedRunWarning, match=rf"edited/{file} is damaged: (it )?{problem}\. Copy"
    ):
        runs = read_runs(tmp_path)

    assert [run.directory.name for run in runs] == ["sound"]


def test_a_table_that_a_users_tool_wrote_with_other_widths_is_read(make_run, tmp_path):
    run = make_run("edited")
    path = tmp_path / "edited" / "tables/permutation.parquet"
    frame = pq.read_table(path).to_pandas()
    frame = frame.astype({"seed": "int32", "value": "float32", "metric": str})
    frame.to_parquet(path)
    seal_again(run)
    (read,) = read_runs(tmp_path)
    assert read.seed == 0
