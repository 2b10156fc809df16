"""Every damaged byte of a finished run is noticed by whatever reads the file, and named.

The full campaign, at least 1,000 damages: python -m pytest -m slow tests/results/test_damage.py
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from attnprobe import load_run, read_examples, read_results
from attnprobe.core.errors import UserError
from attnprobe.data.teacher import Teacher
from attnprobe.findings.groups import read_runs
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import DamagedRun
from attnprobe.runs.prepare import is_finished
from attnprobe.runs.run import run
from attnprobe.runs.settings import Settings
from tests.small_runs import small_run

MADE = ("model.safetensors", "vocabulary.json", "pipeline.json")
TRAINED = (*MADE, "examples/train.parquet", "examples/validation.parquet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(small_run(tmp_path_factory.mktemp("runs"), "figures=true"))


@dataclass(frozen=True)
class Reader:
    """Reads some files of a run, and with them the manifest."""

    files: set[str]
    read: Callable[[], Any]


def readers(directory):
    """Everything that reads a finished run, by its name."""
    config = small_run(directory.parent.parent.parent, "figures=true", f"run_dir={directory}")
    names = {path.relative_to(directory).as_posix() for path in files_in(directory)}
    tables = {name for name in names if name.startswith("tables/")}
    reported = {name for name in names if name.endswith(".parquet")} - set(TRAINED)
    return {
        "verify": Reader(names - {"training.json"}, lambda: RunDirectory(directory).verify()),
        "read_results": Reader(tables, lambda: read_results(directory)),
        "read_examples": Reader({"examples/test.parquet"}, lambda: read_examples(directory)),
        "load_run": Reader({"config.yaml", *MADE}, lambda: load_run(directory)),
        "teacher": Reader({"examples/train.parquet"}, lambda: Teacher.open(directory, ["train"])),
        "report": Reader({"pipeline.json", *reported}, lambda: read_runs(directory)),
        "resume": Reader({"training.json", *TRAINED}, lambda: is_finished(Settings.of(config))),
    }


def files_in(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file())


def damages(content, generator, flips):
    """(what was done, the damaged content; None: no file)."""
    yield "deleted", None
    yield "emptied", b""
    yield "cut", content[: generator.randrange(len(content))]
    yield "lengthened", content + b"\n"
    for _ in range(flips):
        place = generator.randrange(len(content))
        bit = generator.randrange(8)
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(changed)


def oversight(name, reader, path, *, is_missing):
    """What a reader did that neither noticed nor named the damage of a file; None where it did.

    Args:
        name: the reader's.
        reader: the reader.
        path: of the damaged file.
        is_missing: whether the damage is that there is no such file.
    """
    expected = UserError if is_missing and path.name == "manifest.json" else DamagedRun
    try:
        result = reader.read()
    except Exception as error:  # any other kind is what this looks for
        is_named = isinstance(error, expected) and path.name in str(error)
        return None if is_named else repr(error)
    is_made_again = name == "resume" and result is False
    return None if is_made_again else "accepted"


def campaign(finished, folder, flips):
    """The damages that a reader of the file did not notice or name, and how many there were."""
    directory = folder / "testbed" / "damaged"
    shutil.copytree(finished, directory)
    all_readers = readers(directory)
    unnoticed = []
    count = 0
    for path in files_in(directory):
        # the mark says nothing; findings.parquet is made of the others, and again when damaged
        if path.name in (".attnprobe", "findings.parquet"):
            continue
        file = path.relative_to(directory).as_posix()
        concerned = {
            name: reader
            for name, reader in all_readers.items()
            if file == "manifest.json" or file in reader.files
        }
        assert concerned, f"nothing reads {file}"
        content = path.read_bytes()
        for damage, damaged in damages(content, random.Random(file), flips):
            count += 1
            path.unlink(missing_ok=True)
            if damaged is not None:
                path.write_bytes(damaged)
            for name, reader in concerned.items():
                result = oversight(name, reader, path, is_missing=damaged is None)
                if result is not None:
                    unnoticed.append((name, file, damage, result))
        path.write_bytes(content)
    for reader in all_readers.values():  # all is as it was: what was found was the damage
        reader.read()
    return unnoticed, count


@pytest.mark.parametrize(
    ("flips", "least"), [(5, 100), pytest.param(100, 1000, marks=pytest.mark.slow)]
)
def test_every_damage_is_noticed_and_named(finished, tmp_path, flips, least):
    unnoticed, count = campaign(finished, tmp_path, flips)
    assert count >= least
    assert not unnoticed
