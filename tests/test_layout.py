"""The laws of the house that no library keeps.

Nothing is written twice, a name means one thing, and every part stands where its name says.
Each law is also broken on purpose, to see that it is noticed. Layout, complexity and docstrings are
ruff's, layers and circles are import-linter's (`make lint`).
"""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from hydra.utils import get_class
from omegaconf import OmegaConf

import attnprobe
from attnprobe.core.settings import arguments
from attnprobe.importance.base import classes
from tests import law

PACKAGE = Path(__file__).parent.parent / "attnprobe"
CONF = PACKAGE.parent / "conf"


def test_no_name_is_defined_in_many_places():
    assert law.crowded_names(PACKAGE) == {}


def test_no_logic_stands_twice():
    root = PACKAGE.parent
    assert law.copied_logic(PACKAGE, root / "hydra_plugins", root / "benchmarks") == []


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
    # what differs ends the run
    (tmp_path / "b.py").write_text(COPY.replace("s -= p.size", "s -= p.weight"))
    assert law.copied_logic(tmp_path) == []


def test_the_public_names_are_there():
    assert all(getattr(attnprobe, name) is not None for name in attnprobe.__all__)
    assert dir(attnprobe) == sorted(attnprobe.__all__)
    with pytest.raises(AttributeError, match="no attribute 'unheard_of'"):
        _ = attnprobe.unheard_of


@pytest.mark.parametrize(
    "path", sorted((CONF / "probe").glob("*.yaml")), ids=lambda path: path.stem
)
@pytest.mark.parametrize("place", ["attnprobe/probes/{}.py", "tests/probes/test_{}.py"])
def test_a_probe_has_one_stem_everywhere(path, place):
    assert (PACKAGE.parent / place.format(path.stem)).exists()


@pytest.mark.parametrize(
    "path",
    [*sorted((CONF / "probe").glob("*.yaml")), *sorted((CONF / "importance").glob("*.yaml"))],
    ids=lambda path: f"{path.parent.name}.{path.stem}",
)
def test_a_class_has_the_same_defaults_in_python_and_on_the_command_line(path):
    settings = OmegaConf.to_container(OmegaConf.load(path))
    parameters = arguments(get_class(settings.pop("_target_")))
    for name, value in settings.items():
        # which importances a probe takes is one choice for all probes of a command line
        is_reference = isinstance(value, str) and value.startswith("${")
        if is_reference or name == "importances":
            continue
        default = parameters[name].default
        assert json.loads(json.dumps(default)) == value, name


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
    # of files that are no run's
    checkpoints = {
        ("models/pretrained/checkpoint.py", ".safetensors"),
        ("models/pretrained/folder_checks.py", ".safetensors"),
    }
    assert {file for file, _ in spelled - checkpoints} == {"results/directory.py"}, spelled


@pytest.mark.parametrize(
    "path", sorted((CONF / "importance").glob("*.yaml")), ids=lambda path: path.stem
)
def test_an_importance_is_called_as_its_settings_are(path):
    assert classes()[path.stem].name == path.stem


def undefined_names(folder):
    """Names that nothing defines, as `file:line name`. The linter cannot be asked for them as it
    stands: words of the shape annotations are strings that look like names."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821"]
    command += ["--output-format", "json", folder]
    findings = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    return [
        f"{finding['filename']}:{finding['location']['row']} {finding['message']}"
        for finding in findings
        if not is_in_string(finding)
    ]


def is_in_string(finding):
    """Whether the linter points into a string; what an f-string computes is code."""
    place = (finding["location"]["row"], finding["location"]["column"] - 1)
    return any(start <= place < end for start, end in strings_of(finding["filename"]))


@cache
def strings_of(filename):
    """Where the strings of a file start and end, those of f-strings left out."""
    nodes = list(ast.walk(ast.parse(Path(filename).read_text(encoding="utf-8"))))
    composed = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            composed.update(ast.walk(node))
    return [
        ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in composed
    ]


@pytest.mark.parametrize("folder", ["attnprobe", "hydra_plugins", "benchmarks", "tests"])
def test_every_name_is_defined(folder):
    assert undefined_names(PACKAGE.parent / folder) == []


def test_an_undefined_name_is_seen_and_a_shape_is_not(tmp_path):
    lines = (
        'def f(x: Float[Tensor, "batch seq"]) -> None:\n    lost()\n    print(f"{1 / gone} s")\n'
    )
    (tmp_path / "module.py").write_text(lines)
    names = [line.split("`")[1] for line in undefined_names(tmp_path)]
    assert names == ["Float", "Tensor", "lost", "gone"]
