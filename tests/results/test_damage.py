"""Every damaged byte of a finished run is noticed by whatever reads the file, and named.

The full campaign, at least 1,000 damages: python -m pytest -m slow tests/results/test_damage.py
"""

import random
import shutil

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


def readers(directory):
    """Reader → (the files that it reads besides the manifest, the call)."""
    config = small_run(directory.parent.parent.parent, "figures=true", f"run_dir={directory}")
    files = [
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    ]
    tables = [name for name in files if name.startswith("tables/")]
    shown = [name for name in files if name.endswith(".parquet") and name not in TRAINED]
    return {
        "verify": ({*files} - {"training.json"}, lambda: RunDirectory(directory).verify()),
        "read_results": (tables, lambda: read_results(directory)),
        "read_examples": (["examples/test.parquet"], lambda: read_examples(directory)),
        "load_run": (["config.yaml", *MADE], lambda: load_run(directory)),
        "teacher": (["examples/train.parquet"], lambda: Teacher.open(directory, ["train"])),
        "report": (["pipeline.json", *shown], lambda: read_runs(directory)),
        "resume": (["training.json", *TRAINED], lambda: is_finished(Settings.of(config))),
    }


def damages(content, generator, flips):
    """(what was done, the damaged content; None: no file)."""
    yield from (
        ("deleted", None),
        ("emptied", b""),
        ("cut", content[: generator.randrange(len(content))]),
    )
    yield "lengthened", content + b"\n"
    for _ in range(flips):
        place = generator.randrange(len(content))
        bit = generator.randrange(8)
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} flipped", bytes(changed)


def campaign(finished, folder, flips):
    """The damages that a reader of the file did not notice or name, and how many there were."""
    directory = folder / "testbed" / "damaged"
    shutil.copytree(finished, directory)
    calls = readers(directory)
    unnoticed = []
    count = 0
    # the mark says nothing; findings.parquet is made of the others, and made again where it is
    # damaged
    made = (".attnprobe", "findings.parquet")
    paths = sorted(
        path for path in directory.rglob("*") if path.is_file() and path.name not in made
    )
    for path in paths:
        name = path.relative_to(directory).as_posix()
        content = path.read_bytes()
        for what, damaged in damages(content, random.Random(name), flips):
            count += 1
            path.unlink(missing_ok=True)
            if damaged is not None:
                path.write_bytes(damaged)
            concerned = [
                reader for reader, (reads, _) in calls.items() if name in (*reads, "manifest.json")
            ]
            assert concerned, f"nothing reads {name}"
            for reader in concerned:
                try:
                    result = calls[reader][1]()
                except Exception as error:  # any other kind is what this looks for
                    missing = name == "manifest.json" and damaged is None
                    named = isinstance(
                        error, UserError if missing else DamagedRun
                    ) and path.name in str(error)
                    if not named:
                        unnoticed.append((reader, name, what, repr(error)))
                else:
                    if not (reader == "resume" and result is False):
                        unnoticed.append((reader, name, what, "accepted"))
        path.write_bytes(content)
    for _, call in calls.values():  # all is as it was: what was found was the damage
        call()
    return unnoticed, count


@pytest.mark.parametrize(
    ("flips", "least"), [(5, 100), pytest.param(100, 1000, marks=pytest.mark.slow)]
)
def test_every_damage_is_noticed_and_named(finished, tmp_path, flips, least):
    unnoticed, count = campaign(finished, tmp_path, flips)
    assert count >= least
    assert not unnoticed
