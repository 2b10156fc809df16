import re

import pytest

from attnprobe import __version__
from attnprobe.results.directory import MANIFEST, RunDirectory
from attnprobe.results.files import SEAL, DamagedRun, read_sealed
from attnprobe.results.manifest import Manifest, checked_manifest
from attnprobe.runs.run import run
from tests.small_runs import FEW_PASSES, small_run


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    """As a run writes it."""
    output = tmp_path_factory.mktemp("run")
    config = small_run(output, *FEW_PASSES, probes="[permutation,swaps,correlation]")
    return read_sealed(RunDirectory(run(config)) / MANIFEST)


def with_entry(content, path, value):
    """A copy with another value at a path."""
    first, *further = path
    if not further:
        return content | {first: value}
    return content | {first: with_entry(content[first], further, value)}


def test_every_entry_of_a_run_is_declared(manifest):
    assert set(manifest) == {*Manifest.__annotations__, SEAL}


def test_a_runs_own_manifest_is_as_declared(manifest, tmp_path):
    assert checked_manifest(manifest, tmp_path) == manifest


DECLARED = [
    *((name,) for name in Manifest.__annotations__),
    ("tables", "swaps", "rows"),
    ("tables", "swaps", "metrics"),
    ("tables", "correlation", "importances", "attention", "title"),
    ("training", "model"),
    ("data_section", "checks"),
    ("files", "config.yaml", "bytes"),
]


@pytest.mark.parametrize("path", DECLARED, ids=".".join)
def test_another_type_is_one_line_with_the_entry(manifest, tmp_path, path):
    changed = with_entry(manifest, path, {1, 2})
    with pytest.raises(DamagedRun, match=rf"manifest\.json is damaged: {path[0]}") as refused:
        checked_manifest(changed, tmp_path / MANIFEST)
    assert ".".join(path) in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("version", "writer"),
    [
        ("0.0.1", rf"by another attnprobe \(0\.0\.1; this is {re.escape(__version__)}\)"),
        (__version__, rf"by an earlier state of attnprobe {re.escape(__version__)}"),
    ],
)
def test_an_entry_that_was_never_written_is_of_another_version(manifest, tmp_path, version, writer):
    path = ("tables", "swaps", "metrics", "swap_excess")
    metric = manifest["tables"]["swaps"]["metrics"]["swap_excess"]
    earlier = {name: value for name, value in metric.items() if name != "low"}
    changed = with_entry(manifest, path, earlier)
    changed = with_entry(changed, ("versions", "attnprobe"), version)
    message = rf"{writer}, which wrote no tables\.swaps\.metrics\.swap_excess\.low\. .*=replace"
    with pytest.raises(DamagedRun, match=message) as refused:
        checked_manifest(changed, tmp_path / MANIFEST)
    assert "damaged" not in str(refused.value)
