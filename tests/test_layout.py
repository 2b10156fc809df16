"""The house keeps its shape: short files and functions, imports that point one way, nothing written
twice, and every part where its name says. Each law is also broken on purpose, to see that it is
noticed."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import attnprobe
from attnprobe.importance.base import classes
from tests import law

PACKAGE = Path(__file__).parent.parent / "attnprobe"
CONF = PACKAGE.parent / "conf"
FLOORS = (
    ("measures",),
    ("core",),
    ("exact",),
    ("results",),
    ("data", "evidence"),
    ("models", "plots"),
    ("importance",),
    ("probes",),
    ("findings",),
    ("report",),
    ("runs",),
    ("outside",),
    ("__main__",),
    ("cli",),
)
"""The rooms of the package, from the ground up: each may import those below it."""
MOST = {
    "attnprobe": 31_997,
    "research": 2_000,
    "tests": 24_000,
    "files": 187,
    "top-level functions": 758,
}
"""Lines of three folders, and what the package may hold: a new part has to find room. These numbers
only go down."""
FOLDERS = ("attnprobe", "hydra_plugins", "conf", "tests", "benchmarks")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_and_no_function_is_too_long(folder):
    assert law.long_files(PACKAGE.parent / folder) == []
    assert law.long_functions(PACKAGE.parent / folder) == []


def test_the_whole_package_stays_small():
    trees = [law.tree_of(path) for path in law.sources(PACKAGE)]
    texts = {
        one: [path.read_text(encoding="utf-8") for path in law.sources(PACKAGE.parent / one)]
        for one in ("attnprobe", "research", "tests")
    }
    counted = {
        name: sum(len(text.splitlines()) for text in some) for name, some in texts.items()
    } | {
        "files": len(trees),
        "top-level functions": sum(
            isinstance(node, ast.FunctionDef) for tree in trees for node in tree.body
        ),
    }
    assert {name: count for name, count in counted.items() if count > MOST[name]} == {}
    lengths = sorted(
        one.end_lineno - one.lineno + 1 for tree in trees for one in law.functions_of(tree)
    )
    assert lengths[len(lengths) // 2] >= 9, "functions are split too finely"
    assert lengths[int(0.9 * len(lengths))] <= 35, "functions are too long"


def test_no_name_is_defined_in_many_places():
    assert law.crowded_names(PACKAGE) == {}


def test_no_modules_import_each_other():
    assert law.circles(PACKAGE) == []


def test_a_circle_is_seen_in_functions_and_for_types(tmp_path):
    house = tmp_path / "house"
    house.mkdir()
    for file, text in {
        "__init__.py": "from house.a import x",
        "a.py": "def f():\n    from house import b",
        "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.a import x",
        "c.py": "import house.a",
    }.items():
        (house / file).write_text(text)
    assert law.circles(house) == [["house.a", "house.b"]]


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
    assert wrong == [
        "new: on no floor",
        "beside.py → low",
        "ground/__main__.py → upper",
        "low.py → upper",
    ]


def test_no_logic_stands_twice():
    assert (
        law.copied_logic(PACKAGE, PACKAGE.parent / "hydra_plugins", PACKAGE.parent / "benchmarks")
        == []
    )


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
    (tmp_path / "b.py").write_text(
        COPY.replace("s -= p.size", "s -= p.weight")
    )  # what differs ends the run
    assert law.copied_logic(tmp_path) == []


def importers(*libraries):
    """Modules of the package, relative to it, that import any of these."""
    return {
        str(path.relative_to(PACKAGE))
        for path in law.sources(PACKAGE)
        if any(
            name == library or name.startswith(library + ".")
            for name in law.imported(path)
            for library in libraries
        )
    }


def test_only_the_runs_and_the_command_line_know_hydra():
    assert {name.split("/")[0] for name in importers("hydra")} <= {"__main__.py", "runs", "cli"}


def test_the_runs_and_the_training_of_a_model_alone_know_lightning():
    assert {name for name in importers("lightning") if not name.startswith("runs/")} == {
        "models/trained.py"
    }


def test_the_report_computes_nothing_with_a_model():
    assert not {
        name
        for name in importers("torch", "lightning", "attnprobe.models")
        if name.startswith("report")
    }


def test_the_public_names_are_there():
    assert all(getattr(attnprobe, name) is not None for name in attnprobe.__all__)
    assert dir(attnprobe) == sorted(attnprobe.__all__)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        _ = attnprobe.unheard_of


@pytest.mark.parametrize("room", ["measures", "exact"])
def test_arithmetic_knows_no_model_and_no_probe(room):
    below = importers(
        "attnprobe.models", "attnprobe.probes", "attnprobe.data", "attnprobe.report", "lightning"
    )
    assert not {name for name in below if name.startswith(room)}


@pytest.mark.parametrize(
    "path", sorted((CONF / "probe").glob("*.yaml")), ids=lambda path: path.stem
)
def test_a_probe_has_one_stem_everywhere(path):
    for place in (f"attnprobe/probes/{path.stem}.py", f"tests/probes/test_{path.stem}.py"):
        assert (PACKAGE.parent / place).exists(), place


def test_one_module_knows_the_names_of_a_runs_files():
    """`attnprobe.results.directory`; elsewhere they stand in sentences only, for people."""
    names = {
        "manifest.json",
        "training.json",
        "config.yaml",
        "model.safetensors",
        "vocabulary.json",
        "pipeline.json",
    }
    spelled = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.rpartition("/")[2]
                if name in names or name == ".safetensors":
                    spelled.add((str(path.relative_to(PACKAGE)), node.value))
    checkpoints = {
        ("models/pretrained/checkpoint.py", ".safetensors")
    }  # of files that are no run's
    assert {file for file, _ in spelled - checkpoints} == {"results/directory.py"}, spelled


@pytest.mark.parametrize(
    "path", sorted((CONF / "importance").glob("*.yaml")), ids=lambda path: path.stem
)
def test_an_importance_is_called_as_its_settings_are(path):
    assert classes()[path.stem].name == path.stem


def test_importances_know_no_probe():
    assert not {
        name
        for name in importers("attnprobe.probes", "attnprobe.report")
        if name.startswith("importance")
    }


def undefined_names(folder):
    """Names that nothing defines, as `file:line name`. The linter cannot be asked for them as it
    stands: words of the shape annotations are strings that look like names."""
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
    return [
        f"{one['filename']}:{one['location']['row']} {one['message']}"
        for one in reported
        if not in_text(one)
    ]


def in_text(one):
    """Whether the linter points into a string; what an f-string computes is code."""
    at = (one["location"]["row"], one["location"]["column"] - 1)
    tree = ast.parse(Path(one["filename"]).read_text(encoding="utf-8"))
    composed = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
    }
    strings = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    texts = [node for node in strings if id(node) not in composed]
    return any((n.lineno, n.col_offset) <= at < (n.end_lineno, n.end_col_offset) for n in texts)


@pytest.mark.parametrize("folder", ["attnprobe", "hydra_plugins", "benchmarks", "tests"])
def test_every_name_is_defined(folder):
    assert undefined_names(PACKAGE.parent / folder) == []


def test_an_undefined_name_is_seen_and_a_shape_is_not(tmp_path):
    lines = (
        'def f(x: Float[Tensor, "batch seq"]) -> None:\n    lost()\n    print(f"{1 / gone} s")\n'
    )
    (tmp_path / "one.py").write_text(lines)
    found = undefined_names(tmp_path)
    assert [line.split("`")[1] for line in found] == ["Float", "Tensor", "lost", "gone"]
