"""What a stranger who installs, cites or forwards the project looks for."""

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
    changelog = re.findall(r"^## \[(\d.*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert attnprobe.__version__ == citation["version"] == changelog[0]
    assert PROJECT["dynamic"] == ["version"]


def test_the_licence_is_apache_2_in_full():
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["authors"] == [{"name": "attnprobe contributors"}]


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_are_forms(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert form.stem == "config" or {"name", "description", "body"} <= set(content)


def test_every_import_is_a_declared_dependency():
    """What is imported without a guard is among the dependencies, not by luck among theirs."""
    declared = {re.split(r"[<>=!\[; ]", one)[0].lower().replace("-", "_") for one in PROJECT["dependencies"]}
    declared |= {"attnprobe", "hydra", "yaml", "cycler"}  # as they are imported: hydra-core, pyyaml, matplotlib's own
    imported = set()
    for path in (ROOT / "attnprobe").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                imported |= {(alias.name.split(".")[0], path.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add((node.module.split(".")[0], path.name))
    imported = {one for one in imported if one[0] != "wandb"}  # with logger=wandb only, which asks for it first
    third = {one for one in imported if one[0] not in sys.stdlib_module_names}
    assert not {one for one in third if one[0].lower() not in declared}


def test_the_wheel_holds_the_settings_the_pages_parts_and_the_mark_of_types(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    settings = {f"attnprobe/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert settings <= names
    assert {"attnprobe/py.typed", "attnprobe/report/page/style.css", "hydra_plugins/attnprobe_launcher.py"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not {name for name in names if name.startswith(("tests/", "benchmarks/", "conf/"))}


def test_the_source_distribution_can_be_tested_and_read(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "LICENSE",
        "CITATION.cff",
        "CHANGELOG.md",
        "tests/conftest.py",
        "conf/config.yaml",
        "docs/faq.md",
        "Makefile",
    }
    assert wanted <= names


def test_tracking_without_its_extra_is_refused_before_anything_is_trained(monkeypatch):
    from attnprobe.errors import UserError
    from attnprobe.schema import check, resolved
    from tests.runs import composed

    content = resolved(composed("logger=wandb"))
    check(content)
    monkeypatch.setattr(sys.modules["attnprobe.schema.check"], "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"logger=wandb needs pip install 'attnprobe\[wandb\]'"):
        check(content)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """Strict: a link that leads nowhere fails. Needs a package index."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"][
        "docs"
    ]
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "tools")], check=True)
    subprocess.run([str(tmp_path / "tools/bin/pip"), "install", "--quiet", *tools], check=True)
    build = [str(tmp_path / "tools/bin/mkdocs"), "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in ("index.html", "api/index.html", "data/index.html"):
        assert (tmp_path / "site" / page).is_file()
    assert "read_examples" in (tmp_path / "site/api/index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_wheel_works_outside_of_the_repository(built, tmp_path):
    """Installed without the sources in sight: its settings are found, and a run ends with its manifest."""
    place, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    elsewhere.mkdir()
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(place), str(built[0])]
    subprocess.run([sys.executable, *install], check=True)
    environment = os.environ | {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    code = "import attnprobe; print(attnprobe.__file__)"
    where = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert where.stdout.startswith(str(place))
    command = ["-m", "attnprobe", "data.source.train_size=120", "training.epochs=1", "data.embedding_size=8"]
    command += ["probe=[permutation]", "figures=false", "trainer.accelerator=cpu"]
    done = subprocess.run([sys.executable, *command], cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert list(elsewhere.glob("runs/testbed/*/manifest.json"))
