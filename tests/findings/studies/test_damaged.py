import pytest

from attnprobe.findings.studies.base import find_studies, read_study, with_members
from attnprobe.results.files import DamagedRun, read_sealed, write_sealed


@pytest.fixture
def place(study):
    return study([0.83, 0.82], [], {}, {}, tests=["seeds"]).directory


def of_another_run(content):
    members = [member | {"directory": "../base-1-None"} for member in content["members"]]
    return content | {"members": members}


@pytest.mark.parametrize(
    "text", [None, b"[]", b'{"study"', b""], ids=["somebody else's run", "a list", "cut", "empty"]
)
def test_a_damaged_study_is_named_and_left_out(place, text):
    path = place / "study.json"
    if text is None:
        write_sealed(of_another_run(read_sealed(path)), path)
    else:
        path.write_bytes(text)
    with pytest.raises(DamagedRun):
        read_study(place)
    studies, errors = find_studies(place.parent)
    assert (studies, len(errors)) == ([], 1)


def test_a_study_of_a_package_that_is_not_installed_is_named(place):
    path = place / "study.json"
    write_sealed(read_sealed(path) | {"study": "another"}, path)
    studies, (error,) = find_studies(place.parent)
    assert not studies
    assert "is of the study 'another': expected one of" in str(error)


def test_a_sound_study_is_found(place):
    studies, errors = find_studies(place.parent)
    assert (len(studies), errors) == (1, [])


def test_a_report_of_a_study_is_of_its_runs(place):
    runs = [str(run) for run in read_study(place).runs]
    assert runs
    assert with_members([str(place), "elsewhere"]) == [str(place), "elsewhere", *runs]


def test_a_damaged_study_among_others_adds_no_runs(place):
    (place / "study.json").write_text("{")
    assert with_members([str(place), "elsewhere"]) == [str(place), "elsewhere"]
    with pytest.raises(DamagedRun):
        with_members([str(place)])
