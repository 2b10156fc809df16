import ast
import hashlib
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import attnprobe

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the licence's text as apache.org publishes it."""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source distribution, built from the working tree."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changelog = re.findall(
        r"^## \[(\d.*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M
    )
    assert attnprobe.__version__ == citation["version"] == changelog[0]
    assert PROJECT["dynamic"] == ["version"]


def test_the_licence_is_apache_2_in_full():
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["authors"] == [{"name": "attnprobe contributors"}]


def test_every_import_is_a_declared_dependency():
    """What is imported without a guard is among the dependencies, not by luck among theirs."""
    declared = {
        re.split(r"[<>=!\[; ]", dependency)[0].lower().replace("-", "_")
        for dependency in PROJECT["dependencies"]
    }
    # as they are imported: hydra-core, pyyaml, scikit-learn, matplotlib's own
    declared |= {"attnprobe", "hydra", "yaml", "sklearn", "cycler"}
    undeclared = set()
    for path in (ROOT / "attnprobe").rglob("*.py"):
        for name in imported_at_once(path):
            is_asked_for = name == "openpyxl"  # for .xlsx only, and asked for first
            is_third_party = not is_asked_for and name not in sys.stdlib_module_names
            if is_third_party and name.lower() not in declared:
                undeclared.add((name, path.name))
    assert not undeclared


def imported_at_once(path):
    """The packages that a module imports without a guard."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.split(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_the_wheel_holds_the_settings_the_pages_parts_and_the_mark_of_types(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    yamls = (ROOT / "conf").rglob("*.yaml")
    settings = {f"attnprobe/{path.relative_to(ROOT).as_posix()}" for path in yamls}
    assert settings - names == {
        "attnprobe/conf/data/grammar.yaml",
        "attnprobe/conf/data/rules.yaml",
        "attnprobe/conf/experiment/methods.yaml",
        "attnprobe/conf/experiment/questions.yaml",
        "attnprobe/conf/experiment/sanity.yaml",
    }
    assert {
        "attnprobe/findings/calibration.parquet",
        "attnprobe/py.typed",
        "attnprobe/report/page/style.css",
        "hydra_plugins/attnprobe_launcher.py",
    } <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    checkout_only = ("tests/", "benchmarks/", "conf/", "research/")
    assert not {name for name in names if name.startswith(checkout_only)}


def test_the_source_distribution_can_be_tested_and_read(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "CITATION.cff",
        "CHANGELOG.md",
        "tests/conftest.py",
        "conf/config.yaml",
        "research/methods.py",
        "docs/faq.md",
        "Makefile",
    } <= names


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """Strict: a link that leads nowhere fails. Needs a package index."""
    tools = tmp_path / "tools"
    site = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "venv", str(tools)], check=True)
    requirements = PROJECT["optional-dependencies"]["docs"]
    subprocess.run([str(tools / "bin/pip"), "install", "--quiet", *requirements], check=True)
    build = [str(tools / "bin/mkdocs"), "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in ("index.html", "api/index.html", "data/index.html"):
        assert (site / page).is_file()
    assert "read_examples" in (site / "api/index.html").read_text(encoding="utf-8")


SMALL = [
    "training.epochs=2",
    "data.embedding_size=16",
    "model.encoder.hidden_size=16",
    "trainer.accelerator=cpu",
]
COMMANDS = (
    [
        "audit",
        "reviews.csv",
        "--text",
        "review",
        "--label",
        "stars",
        "--minutes",
        "2",
        *SMALL,
        "study.seeds=[1]",
        "study.probes=[permutation,adversarial]",
        "--archive",
        "evidence.zip",
    ],
    [
        "run",
        "+experiment=jain_adversarial",
        "data=files",
        "data.path=reviews.csv",
        "data.text=review",
        "data.label=stars",
        *SMALL,
        "seed=7",
    ],
    ["report", "runs", "-o", "report.html"],
    ["compare", "runs/reviews/lstm_additive-seed0-*", "runs/reviews/lstm_additive-seed7-*"],
    ["explain", "runs/reviews/lstm_additive-seed7-*", "a splendid film"],
)
"""The five of the command's help, at a size at which nothing is learnt."""


@pytest.fixture
def environment(built, tmp_path):
    """A new environment with the wheel and what it declares. Needs a package index."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/pip"), "install", "--quiet"]
    install += ["--constraint", str(ROOT / "constraints.txt")]
    for requirement in ("torch", str(built[0])):
        subprocess.run([*install, requirement], check=True)
    return folder


def output_of(command, folder):
    """What a command prints in this folder, started from a shell that knows no checkout."""
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    for name in ("PYTHONPATH", "VIRTUAL_ENV"):
        variables.pop(name, None)
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def expanded(word, folder):
    """As a shell would: the names of runs end in a fingerprint."""
    if not word.startswith("runs/"):
        return word
    matches = sorted(folder.glob(word))
    return str(matches[0].relative_to(folder)) if matches else word


@pytest.mark.slow
def test_the_five_commands_run_from_the_wheel_in_an_empty_environment(environment, tmp_path):
    """Installed as a stranger would, no sources in sight: what is declared is enough."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    lines = ["review,stars"]
    for number in range(240):
        words = "a splendid and fine" if number % 2 else "a dull and weak"
        lines.append(f"{words} film number {number},{number % 2}")
    (folder / "reviews.csv").write_text("\n".join(lines) + "\n")

    python = str(environment / "bin/python")
    attnprobe_command = str(environment / "bin/attnprobe")
    code = "import attnprobe; print(attnprobe.__file__)"
    assert output_of([python, "-c", code], folder).startswith(str(environment))
    version = output_of([attnprobe_command, "--version"], folder)
    assert version == f"attnprobe {attnprobe.__version__}\n"
    for command in COMMANDS:
        words = [expanded(word, folder) for word in command]
        assert output_of([attnprobe_command, *words], folder)
    assert {"report.html", "evidence.zip", "runs"} <= {path.name for path in folder.iterdir()}
