import pytest

from attnprobe.findings.studies.base import find_studies, read_study, with_members
from attnprobe.results.files import DamagedRun, read_sealed, write_sealed


def test_a_damaged_study_is_named_and_left_out(study, tmp_path):
    study([0.83, 0.82], [], {}, {}, tests=["seeds"])
    path = tmp_path / "study" / "study.json"
    good = read_sealed(path)
    sound = path.read_bytes()
    write_sealed(
        {**good, "members": [one | {"directory": "../base-1-None"} for one in good["members"]]},
        path,
    )
    for content in (
        path.read_bytes(),
        b"[]",
        b'{"study"',
        b"",
    ):  # of somebody else's run, a list, cut, empty
        path.write_bytes(content)
        with pytest.raises(DamagedRun):
            read_study(path.parent)
        found, skipped = find_studies(tmp_path)
        assert (found, len(skipped)) == ([], 1), content
    write_sealed({**good, "study": "another"}, path)  # of a package that is not installed here
    found, skipped = find_studies(tmp_path)
    assert not found
    assert "is of the study 'another': expected one of" in str(skipped[0])
    path.write_bytes(sound)
    assert len(find_studies(tmp_path)[0]) == 1


def test_a_report_of_a_study_is_of_its_runs(study, tmp_path):
    study([0.83, 0.82], [], {}, {}, tests=["seeds"])
    place = str(tmp_path / "study")
    runs = [str(run) for run in read_study(place).runs]
    assert runs
    assert with_members([place, "elsewhere"]) == [place, "elsewhere", *runs]
    (tmp_path / "study" / "study.json").write_text("{")
    assert with_members([place, "elsewhere"]) == [place, "elsewhere"]
    with pytest.raises(DamagedRun):
        with_members([place])
