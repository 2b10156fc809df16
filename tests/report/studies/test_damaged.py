"""A study.json that is not as a study wrote it, sealed again by whoever changed it or not sealed at all."""

import json

import pytest

from attnprobe.report.studies import find_studies, read_study
from attnprobe.results.checksums import DamagedRun, read_sealed
from attnprobe.results.files import write_sealed

FORGED = {
    "no member": {"members": []},
    "a number for a member": {"members": [3]},
    "a member of no run": {"members": [{"role": "base", "seed": 0, "parameter": None}]},
    "a directory that is none": {"directory": 3},
    "a directory with a null": {"directory": "x\0y"},
    "somebody else's run": {"directory": "../base-1-None"},
    "no seed": {"seed": "one"},
    "no base": {"role": "guide_base"},
    "tests as text": {"settings": {"tests": "seeds", "above": 0.4}},
    "above as text": {"settings": {"tests": ["guide"], "above": "far"}},
    "nothing above": {"settings": {"tests": ["adversary"]}},
    "no settings": {"settings": None},
    "no data": {"data": 3},
    "no study": {"study": None},
    "a list": [],
    "cut": b'{"study"',
    "empty": b"",
}


def test_a_damaged_study_is_named_and_left_out(study, tmp_path):
    study([0.83, 0.82], [], {}, {0.0: (0.04, 0.1), 0.1: (0.3, 0.65)}, tests=["seeds", "adversary"])
    path = tmp_path / "study" / "study.json"
    good = read_sealed(path)
    for name, change in FORGED.items():
        if isinstance(change, dict):
            of_members = set(change) <= {"directory", "seed", "role"}
            members = [one | change for one in good["members"]] if of_members else good["members"]
            write_sealed({**good, "members": members} | ({} if of_members else change), path)
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
