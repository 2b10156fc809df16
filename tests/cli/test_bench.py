import json
from pathlib import Path

import pandas as pd
import pytest

from attnprobe.cli.bench import bench, cited
from attnprobe.evidence.statistics import Interval
from attnprobe.findings.bench.folder import BenchFolder
from attnprobe.findings.bench.scores import reversed_truth, truth
from tests.toy_bench import write_bench

# a bench is made and judged
pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench")
    write_bench(path, absence=True)
    return str(path)


def test_the_table_ranks_scores_within_80_columns(folder, capsys):
    bench(["reverse", "attention", "truth", "--data", folder])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    table = "\n".join(lines)
    assert table.index("truth ") < table.index("attention") < table.index("reverse")


def test_one_source_has_a_line_per_kind_of_rule(folder, capsys):
    bench(["truth", "--data", folder])
    printed = capsys.readouterr().out
    assert "4 models of 3 rules, 3 with words that move" in printed
    assert all(kind in printed for kind in ("absence", "recency", "token"))


def test_json_has_every_rate(folder, capsys):
    bench(["truth", "--data", folder, "--json"])
    lines = json.loads(capsys.readouterr().out)
    overall = next(line for line in lines if line["kind"] == "all")
    assert overall["auroc"] == 1
    assert overall["yes"] == 1
    absence = next(line for line in lines if line["kind"] == "absence")
    assert absence["yes"] is None


def test_two_files_of_one_name_are_two_lines(folder, tmp_path, capsys):
    paths = []
    for name, scorer in (("mine", truth), ("theirs", reversed_truth)):
        path = tmp_path / name / "scores.parquet"
        path.parent.mkdir()
        stored = BenchFolder(Path(folder))
        pd.DataFrame(
            {"model": model.name, "example_id": text.example_id, "scores": scores}
            for model in stored.models()
            for texts in [stored.texts(model)]
            for text, scores in zip(texts, scorer(model, texts), strict=True)
        ).to_parquet(path)
        paths.append(str(path))
    bench([*paths, "--data", folder, "--json"])
    lines = json.loads(capsys.readouterr().out)
    auroc = {line["scores"]: line["auroc"] for line in lines if line["kind"] == "all"}
    assert auroc == {paths[0]: 1, paths[1]: 0}


def test_rows_are_written(folder, tmp_path, capsys):
    path = tmp_path / "rows.parquet"
    bench(["truth", "reverse", "--data", folder, "-o", str(path)])
    rows = pd.read_parquet(path)
    assert len(rows) == 8
    assert {"scores", "model", "rule", "auroc", "share_low", "answer"} <= set(rows.columns)


def test_only_its_own_file_is_replaced(folder, tmp_path, capsys):
    path = tmp_path / "rows.parquet"
    for _ in range(2):
        bench(["truth", "--data", folder, "-o", str(path)])
    path.write_bytes(b"a thesis")
    with pytest.raises(SystemExit) as ended:
        bench(["truth", "--data", folder, "-o", str(path)])
    assert ended.value.code == 2
    assert path.read_bytes() == b"a thesis"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["truht"], "truht: expected a file of scores"),
        (["scores.parquet"], "scores.parquet"),
        (["truth", "--models", "gru*"], "--models=gru*: no model"),
        (["truth", "--data", "nowhere"], "nowhere holds no bench"),
        ([], "SCORES"),
    ],
)
def test_a_mistake_is_one_line(folder, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        bench(["--data", folder, *arguments] if "--data" not in arguments else arguments)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_numbers_are_short():
    assert cited(Interval(0.934, 0.88, 1.0)) == ".93 [.88, 1.00]"
    assert cited(Interval(-0.05, -0.1, 0.02)) == "-.05 [-.10, .02]"
    assert cited(Interval(-0.001, -0.004, 0.1)) == ".00 [.00, .10]"
    assert cited(Interval(1.0, 0.735, 1.0), percent=True) == "100 [74, 100]"
    assert cited(Interval(1.0, float("nan"), float("nan"))) == "1.00"
    assert cited(Interval(float("nan"), float("nan"), float("nan"))) == ""
