"""The house keeps its shape: short files and functions, imports that point one way, nothing written twice, and every part
where its name says. Each law is also broken on purpose, to see that it is noticed."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import attnprobe
from tests import law

PACKAGE = Path(__file__).parent.parent / "attnprobe"
CONF = PACKAGE.parent / "conf"
FLOORS = (
    ("measures", "shown"),
    ("batch", "errors"),
    ("readout", "halving", "exact", "results", "randomness"),
    ("data", "configuration", "report"),
    ("models", "schema", "overrides", "launching"),
    ("erasure",),
    ("importance",),
    ("nulls",),
    ("probes",),
    ("running",),
    ("loading", "outside"),
    ("studies",),
    ("__main__",),
    ("command",),
)
"""The rooms of the package, from the ground up: each may import those below it."""
FOLDERS = ("attnprobe", "hydra_plugins", "conf", "tests", "benchmarks")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_is_over_300_lines(folder):
    assert law.long_files(PACKAGE.parent / folder) == []


def test_a_long_file_is_seen(tmp_path):
    (tmp_path / "short.py").write_text("x = 1\n" * 300)
    (tmp_path / "long.yaml").write_text("x: 1\n" * 301)
    assert law.long_files(tmp_path) == ["long.yaml: 301"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_function_is_over_60_lines(folder):
    assert law.long_functions(PACKAGE.parent / folder) == []


def test_a_long_function_is_seen(tmp_path):
    fits, too_long = (
        "def fits():\n" + "    x = 1\n" * 59,
        "class C:\n    def too_long(self):\n" + "        x = 1\n" * 60,
    )
    (tmp_path / "a.py").write_text(fits + too_long)
    assert law.long_functions(tmp_path) == ["a.py too_long: 61"]


def test_imports_point_one_way():
    assert law.upward_imports(PACKAGE, FLOORS) == []


def test_an_import_upwards_or_sideways_and_a_room_without_a_floor_are_seen(tmp_path):
    house = tmp_path / "house"
    for file, text in {
        "__init__.py": "from house import upper",
        "low.py": "def later():\n    from house.upper import deep",
        "beside.py": "import house.low",
        "new.py": "",
        "upper/__init__.py": "",
        "upper/deep.py": "from house import low",
        "ground/__init__.py": "",
        "ground/__main__.py": "import house.upper",
    }.items():
        (house / file).parent.mkdir(parents=True, exist_ok=True)
        (house / file).write_text(text)
    wrong = law.upward_imports(house, (("low", "beside", "ground"), ("upper",)))
    assert wrong == ["new: on no floor", "beside.py → low", "low.py → upper"]


def test_no_logic_stands_twice():
    assert law.copied_logic(PACKAGE, PACKAGE.parent / "hydra_plugins", PACKAGE.parent / "benchmarks") == []


ORIGINAL = """
def total(rows):
    found = 0
    for row in rows:
        if row.open:
            found += row.size
        else:
            found -= row.size
    found *= 2
    return found
"""
COPY = """
class Things:
    def whole(self, parts: list) -> int:
        '''Another docstring.'''
        s = 0
        for p in parts:
            # and a comment
            if (
                p.open
            ):
                s += p.size
            else:
                s -= p.size
        s *= 2
        return s
"""


def test_a_copy_is_seen_under_other_names_and_in_another_layout(tmp_path):
    for name, text in {"a": ORIGINAL, "b": COPY}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (place, _) = law.copied_logic(tmp_path)
    assert place == f"{tmp_path}/a.py:3 = {tmp_path}/b.py:5"
    (tmp_path / "b.py").write_text(COPY.replace("s -= p.size", "s -= p.weight"))  # what differs ends the run
    assert law.copied_logic(tmp_path) == []


def importers(*libraries):
    """Modules of the package, relative to it, that import any of these."""
    return {
        str(path.relative_to(PACKAGE))
        for path in law.sources(PACKAGE)
        if any(
            name == library or name.startswith(library + ".") for name in law.imported(path) for library in libraries
        )
    }


def test_nothing_but_the_command_line_and_the_studies_imports_the_run():
    assert importers("attnprobe.running.run") <= {"__main__.py", "studies/base.py"}


def test_only_the_run_its_parts_and_the_command_line_know_hydra():
    assert importers("hydra") <= {
        "__main__.py", "configuration.py", "schema/answers.py",
        "running/run.py", "running/settings.py", "running/build.py", "loading.py", "studies/base.py", "studies/timing.py",
    }  # fmt: skip


def test_few_rooms_know_lightning():
    allowed = {
        "running/run.py", "running/weights.py", "running/training.py", "running/logger.py", "running/progress.py",
        "running/collecting.py", "running/playground.py",
        "probes/base.py", "models/base.py", "data/module.py",
    }  # fmt: skip
    assert importers("lightning") <= allowed


def test_the_report_knows_neither_torch_nor_the_model():
    report = {
        name for name in importers("torch", "lightning", "attnprobe.models", "attnprobe.probes") if "report" in name
    }
    assert not report


def test_the_pool_knows_neither_the_model_nor_hydra():
    """A study, a script or a sweep may use it."""
    above = importers(
        "hydra", "lightning", "attnprobe.models", "attnprobe.probes", "attnprobe.data", "attnprobe.running.run"
    )
    assert not {name for name in above if name.startswith("launching")}


def test_the_command_line_starts_without_torch():
    """Every job, --help and the report wait for what is imported here."""
    code = "import sys, attnprobe.__main__, hydra_plugins.attnprobe_launcher; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_public_names_are_there():
    assert all(getattr(attnprobe, name) is not None for name in attnprobe.__all__)
    assert dir(attnprobe) == sorted(attnprobe.__all__)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        _ = attnprobe.unheard_of


@pytest.mark.parametrize("room", ["measures", "exact"])
def test_arithmetic_knows_no_model_and_no_probe(room):
    below = importers("attnprobe.models", "attnprobe.probes", "attnprobe.data", "attnprobe.report", "lightning")
    assert not {name for name in below if name.startswith(room)}


@pytest.mark.parametrize("path", sorted((CONF / "probe").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_probe_has_one_stem_everywhere(path):
    for place in (f"attnprobe/probes/{path.stem}.py", f"tests/probes/test_{path.stem}.py",
                  f"attnprobe/report/readings/{path.stem}.py"):  # fmt: skip
        assert (PACKAGE.parent / place).exists(), place


def test_one_module_knows_the_names_of_a_runs_files():
    """`attnprobe.results.directory`; elsewhere they stand in sentences only, for people."""
    names = {"manifest.json", "training.json", "config.yaml", "model.safetensors", "vocabulary.json", "pipeline.json"}
    spelled = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.rpartition("/")[2]
                if name in names or name == ".safetensors":
                    spelled.add((str(path.relative_to(PACKAGE)), node.value))
    assert {file for file, _ in spelled} == {"results/directory.py"}, spelled


@pytest.mark.parametrize("path", sorted((CONF / "importance").glob("*.yaml")), ids=lambda path: path.stem)
def test_an_importance_has_one_stem_everywhere(path):
    stem = path.stem
    assert any((PACKAGE / f"importance/{place}").exists() for place in (f"{stem}.py", f"{stem}/member.py"))
    assert (PACKAGE.parent / f"tests/importance/test_{stem}.py").exists()


def test_importances_know_no_probe():
    assert not {name for name in importers("attnprobe.probes", "attnprobe.report") if name.startswith("importance")}


def undefined_names(folder):
    """Names that nothing defines, as `file:line name`. The linter cannot be asked for them as it stands: words of the shape
    annotations are strings that look like names."""
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--isolated",
        "--select",
        "F821",
        "--output-format",
        "json",
        folder,
    ]
    reported = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    return [f"{one['filename']}:{one['location']['row']} {one['message']}" for one in reported if not in_text(one)]


def in_text(one):
    """Whether the linter points into a string; what an f-string computes is code."""
    at = (one["location"]["row"], one["location"]["column"] - 1)
    tree = ast.parse(Path(one["filename"]).read_text(encoding="utf-8"))
    composed = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    texts = [node for node in strings if id(node) not in composed]
    return any((n.lineno, n.col_offset) <= at < (n.end_lineno, n.end_col_offset) for n in texts)


@pytest.mark.parametrize("folder", ["attnprobe", "hydra_plugins", "benchmarks", "tests"])
def test_every_name_is_defined(folder):
    assert undefined_names(PACKAGE.parent / folder) == []


def test_an_undefined_name_is_seen_and_a_shape_is_not(tmp_path):
    lines = 'def f(x: Float[Tensor, "batch seq"]) -> None:\n    lost()\n    print(f"{1 / gone} s")\n'
    (tmp_path / "one.py").write_text(lines)
    found = undefined_names(tmp_path)
    assert [line.split("`")[1] for line in found] == ["Float", "Tensor", "lost", "gone"]
