"""A manifest that was written by somebody else, and sealed again, is refused by name where it says what no run says."""

import pytest

from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import DamagedRun
from tests.runs import seal

CHECK = {"name": "rows", "value": 3, "threshold": None, "warns": False, "sentence": "3 rows"}
METRIC = {"unit": "TVD", "low": 0, "high": None, "step": "", "higher_is_better": True}
FACTS = {"name": "mine", "title": "my own", "colour": "#117733", "signed": False}
SAID = {
    "data_section": {"notes": ["read as cp1252"], "checks": [CHECK, CHECK | {"threshold": 0.5, "warns": True}]},
    "training": {"model": {"encoder": {}, "heads": None}},
    "counts": {"train": {"kept": 3, "dropped": {"long": 1}}},
    "tables": {"erasure": {"importances": {"mine": FACTS}, "metrics": {"tvd": METRIC}, "seconds": 1.5}},
}


def said(directory, **changed):
    (directory / "tables").mkdir()
    (directory / "tables/erasure.parquet").write_bytes(b"some")
    seal(directory, **SAID | changed)
    return RunDirectory(directory).manifest()


def test_what_a_run_says_is_read(tmp_path):
    manifest = said(tmp_path)
    assert {name: manifest[name] for name in SAID} == SAID


WRONG = {
    "data_section": [
        3, {"notes": "one"}, {"notes": [3]}, {"checks": {}}, {"checks": ["rows"]},
        *({"checks": [CHECK | change]} for change in ({"name": 1}, {"warns": "no"}, {"value": True}, {"threshold": []})),
        {"checks": [{"name": "rows"}]},
    ],
    "training": ["x", {"model": 5}, {"data": "x"}, {"model": {"encoder": "x"}}, {"model": {"heads": 5}}],
    "counts": [
        3, {"train": 3}, {"train": {"kept": "many"}}, {"train": {"dropped": {"long": None}}}, {"train": {"dropped": 3}},
    ],
    "tables": [
        *({"erasure": {"importances": told}} for told in (3, {"mine": "a title"}, {"mine": {"seconds": []}})),
        *({"erasure": {"metrics": told}} for told in (3, {"tvd": "TVD"}, {"tvd": METRIC | {"low": "0"}})),
        {"erasure": {"seconds": "many"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("place", "content"), [(place, one) for place, several in WRONG.items() for one in several])
def test_what_no_run_says_is_damage(tmp_path, place, content):
    with pytest.raises(DamagedRun, match=place):
        said(tmp_path, **{place: content})
