"""A manifest that was written by somebody else, and sealed again, is refused by name where it says what no run says."""

import pytest

from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import DamagedRun
from tests.runs import seal

CHECK = {"name": "rows", "value": 3, "threshold": None, "warns": False, "sentence": "3 rows"}
FACTS = {"name": "mine", "title": "my own", "colour": "#117733", "signed": False}


@pytest.mark.parametrize(
    "section", [{}, {"notes": ["read as cp1252"]}, {"checks": [CHECK, CHECK | {"threshold": 0.5, "warns": True}]}]
)
def test_what_a_run_says_is_read(tmp_path, section):
    tables = {"erasure": {"importances": {"mine": FACTS}}}
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/erasure.parquet").write_bytes(b"some")
    seal(tmp_path, tables=tables, data_section=section)
    assert RunDirectory(tmp_path).manifest()["data_section"] == section


@pytest.mark.parametrize(
    "section",
    [3, {"notes": "one"}, {"notes": [3]}, {"checks": {}}, {"checks": ["rows"]}]
    + [{"checks": [CHECK | change]} for change in (
        {"name": 1}, {"sentence": None}, {"warns": "no"}, {"value": "many"}, {"value": True}, {"threshold": []},
    )]
    + [{"checks": [{name: value for name, value in CHECK.items() if name != left_out}]} for left_out in ("name", "warns")],
)  # fmt: skip
def test_a_data_section_that_is_none_is_damage(tmp_path, section):
    seal(tmp_path, data_section=section)
    with pytest.raises(DamagedRun, match="data_section"):
        RunDirectory(tmp_path).manifest()


@pytest.mark.parametrize(
    "settings",
    ["x", {"model": 5}, {"model": ["a"]}, {"model": None}, {"data": "x"}]
    + [{"model": {stage: "x"}} for stage in ("encoder", "attention")]
    + [{"model": {"_target_": "x.PretrainedClassifier", "heads": 5}}],
)
def test_settings_that_are_none_are_damage(tmp_path, settings):
    seal(tmp_path, training=settings)
    with pytest.raises(DamagedRun, match=r"training"):
        RunDirectory(tmp_path).manifest()


@pytest.mark.parametrize(
    "counts",
    [3, {"train": 3}, {"train": {"kept": "many"}}, {"train": {"dropped": {"long": None}}}, {"train": {"dropped": 3}}],
)
def test_counts_that_are_none_are_damage(tmp_path, counts):
    seal(tmp_path, counts=counts)
    with pytest.raises(DamagedRun, match="counts"):
        RunDirectory(tmp_path).manifest()


def test_settings_and_counts_of_a_run_are_read(tmp_path):
    said = {
        "training": {"model": {"encoder": {}, "heads": None}},
        "counts": {"train": {"kept": 3, "dropped": {"long": 1}}},
    }
    seal(tmp_path, **said, tables={})
    assert RunDirectory(tmp_path).manifest()["counts"] == said["counts"]


@pytest.mark.parametrize("told", [3, [], {"mine": "a title"}, {"mine": {"title": 3}}, {"mine": {"colour": ["red"]}}])
def test_importances_that_are_none_are_damage(tmp_path, told):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/erasure.parquet").write_bytes(b"some")
    seal(tmp_path, tables={"erasure": {"importances": told}})
    with pytest.raises(DamagedRun, match=r"erasure\.importances"):
        RunDirectory(tmp_path).manifest()


METRIC = {"unit": "TVD", "low": 0, "high": None, "step": "", "higher_is_better": True}


@pytest.mark.parametrize(
    ("entry", "match"),
    [({"metrics": told}, r"erasure\.metrics") for told in (
        3, {"tvd": "TVD"}, {"tvd": METRIC | {"unit": 3}}, {"tvd": METRIC | {"low": "0"}}, {"tvd": METRIC | {"step": None}},
        {"tvd": METRIC | {"higher_is_better": "yes"}},
    )]
    + [({"seconds": "many"}, r"erasure\.seconds"), ({"importances": {"mine": {"seconds": []}}}, "importances")],
)  # fmt: skip
def test_metrics_and_times_that_are_none_are_damage(tmp_path, entry, match):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables/erasure.parquet").write_bytes(b"some")
    seal(tmp_path, tables={"erasure": {"metrics": {"tvd": METRIC}} | entry})
    with pytest.raises(DamagedRun, match=match):
        RunDirectory(tmp_path).manifest()
