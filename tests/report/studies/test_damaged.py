"""A study.json or a run of a study that is not as it was written."""

import json

import pytest

from attnprobe.findings.studies.base import find_studies, read_study, with_members
from attnprobe.results.files import DamagedRun, read_sealed, write_sealed

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
