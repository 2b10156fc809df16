"""A study.json or a run of a study that is not as it was written."""

import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.findings.studies.base import find_studies, read_study, with_members
from attnprobe.results.files import DamagedRun, read_sealed, write_sealed, write_table
from tests.report.studies.invented import invented_study
from tests.runs import seal_again

DAMAGED = {"somebody else's run": {"directory": "../base-1-None"}, "a list": [], "cut": b'{"study"', "empty": b""}


def test_a_damaged_study_is_named_and_left_out(study, tmp_path):
    study([0.83, 0.82], [], {}, {0.0: (0.04, 0.1), 0.1: (0.3, 0.65)}, tests=["seeds", "adversary"])
    path = tmp_path / "study" / "study.json"
    good = read_sealed(path)
    for name, change in DAMAGED.items():
        if isinstance(change, dict):
            write_sealed({**good, "members": [one | change for one in good["members"]]}, path)
        else:
            path.write_bytes(change if isinstance(change, bytes) else json.dumps(change).encode())
        with pytest.raises(DamagedRun):
            read_study(path.parent)
        found, skipped = find_studies(tmp_path)
        assert (found, len(skipped)) == ([], 1), name
    write_sealed({**good, "study": "another"}, path)  # of a package that is not installed here
    found, skipped = find_studies(tmp_path)
    assert not found
    assert "is of the study 'another': expected one of" in str(skipped[0])
    write_sealed(good, path)
    assert len(find_studies(tmp_path)[0]) == 1


def test_a_report_of_a_study_is_of_its_runs(study, tmp_path):
    study([0.83, 0.82], [], {}, {0.0: (0.04, 0.1), 0.1: (0.3, 0.65)}, tests=["seeds", "adversary"])
    place = str(tmp_path / "study")
    runs = [str(run) for run in read_study(place).runs]
    assert runs
    assert with_members([place, "elsewhere"]) == [place, "elsewhere", *runs]
    (tmp_path / "study" / "study.json").write_text("{")
    assert with_members([place, "elsewhere"]) == [place, "elsewhere"]
    with pytest.raises(DamagedRun):
        with_members([place])


def without(metric):
    return lambda rows: rows[rows["metric"] != metric]


RUNS = {
    ("base-1-None", "tables/teacher"): {
        "two numbers of one metric": lambda rows: pd.concat([rows, rows[rows["metric"] == "tvd"]]),
        "no jsd of any text": without("jsd"),
    },
    ("base-0-None", "tables/adversarial"): {
        "no optimum_jsd of any text": without("optimum_jsd"),
        "no is_exact of any text": without("is_exact"),
    },
    ("uniform-0-None", "tables/performance"): {
        "one f1 for each": lambda rows: rows[:0],
        "one f1 for": lambda rows: pd.concat([rows, rows]),
    },
    ("adversary-0-0.1", "tables/training"): {"one validation_loss": without("validation_loss")},
    ("uniform-0-None", "examples/test"): {"not those of the study's other runs": lambda rows: rows[:5]},
}


def changed_again(path, change):
    """Change a table's rows and seal its run."""
    table = pq.read_table(path)
    rows = change(table.to_pandas())
    if path.parent.name == "tables":
        write_table(pa.Table.from_pandas(rows, schema=table.schema, preserve_index=False), path)
    else:
        rows.to_parquet(path)
    seal_again(path.parent.parent)


def test_a_run_that_lacks_what_its_study_reads_is_named(tmp_path):
    tests, adversaries = ("uniform", "seeds", "adversary"), {0.0: (0.04, 0.1), 0.1: (0.3, 0.65)}
    directory = invented_study(tmp_path, [0.8, 0.7], [0.6], {}, adversaries, texts=12, tests=tests)
    for (run, name), changes in RUNS.items():
        path = tmp_path / run / f"{name}.parquet"
        sound = path.read_bytes()
        for reason, change in changes.items():
            changed_again(path, change)
            with pytest.raises(DamagedRun, match=f"{path.name} is damaged: .*{reason}"):
                read_study(directory)
            path.write_bytes(sound)
            seal_again(path.parent.parent)
