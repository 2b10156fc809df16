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
        re.split(r"[<>=!\[; ]", one)[0].lower().replace("-", "_") for one in PROJECT["dependencies"]
    }
    # as they are imported: hydra-core, pyyaml, scikit-learn, matplotlib's own
    declared |= {"attnprobe", "hydra", "yaml", "sklearn", "cycler"}
    imported = set()
    for path in (ROOT / "attnprobe").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Import):
                imported |= {(alias.name.split(".")[0], path.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add((node.module.split(".")[0], path.name))
    imported = {
        one for one in imported if one[0] != "wandb"
    }  # with logger=wandb only, which asks for it first
    third = {one for one in imported if one[0] not in sys.stdlib_module_names}
    assert not {one for one in third if one[0].lower() not in declared}


def test_the_wheel_holds_the_settings_the_pages_parts_and_the_mark_of_types(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    settings = {
        f"attnprobe/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")
    }
    studies = (
        "data/rules",
        *(f"experiment/{one}" for one in ("calibration", "methods", "questions", "sanity")),
    )
    assert settings - names == {f"attnprobe/conf/{name}.yaml" for name in studies}
    assert "attnprobe/findings/calibration.parquet" in names
    assert {
        "attnprobe/py.typed",
        "attnprobe/report/page/style.css",
        "hydra_plugins/attnprobe_launcher.py",
    } <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not {
        name for name in names if name.startswith(("tests/", "benchmarks/", "conf/", "research/"))
    }


def test_the_source_distribution_can_be_tested_and_read(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = "LICENSE CITATION.cff CHANGELOG.md tests/conftest.py conf/config.yaml research/methods.py docs/faq.md Makefile"
    assert {*wanted.split()} <= names


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    """Strict: a link that leads nowhere fails. Needs a package index."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "tools")], check=True)
    install = [
        str(tmp_path / "tools/bin/pip"),
        "install",
        "--quiet",
        *PROJECT["optional-dependencies"]["docs"],
    ]
    subprocess.run(install, check=True)
    build = [
        str(tmp_path / "tools/bin/mkdocs"),
        "build",
        "--strict",
        "--site-dir",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page in ("index.html", "api/index.html", "data/index.html"):
        assert (tmp_path / "site" / page).is_file()
    assert "read_examples" in (tmp_path / "site/api/index.html").read_text(encoding="utf-8")


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


@pytest.mark.slow
def test_the_five_commands_run_from_the_wheel_in_an_empty_environment(built, tmp_path):
    """Installed as a stranger would, no sources in sight: what is declared is all that is needed.
    Needs a package index."""
    place = tmp_path / "environment"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    for wanted in ("torch", str(built[0])):
        install = ["install", "--quiet", "--constraint", str(ROOT / "constraints.txt"), wanted]
        subprocess.run([str(place / "bin/pip"), *install], check=True)
    rows = [
        f"{'a splendid and fine' if number % 2 else 'a dull and weak'} film number {number},{number % 2}"
        for number in range(240)
    ]
    (elsewhere / "reviews.csv").write_text("review,stars\n" + "\n".join(rows) + "\n")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    environment = kept | {"OMP_NUM_THREADS": "1"}

    def said(*command: str) -> str:
        done = subprocess.run(
            command, cwd=elsewhere, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    code = "import attnprobe; print(attnprobe.__file__)"
    assert said(str(place / "bin/python"), "-c", code).startswith(str(place))
    assert said(str(place / "bin/attnprobe"), "--version") == f"attnprobe {attnprobe.__version__}\n"
    for command in COMMANDS:
        # as a shell would: the names of runs end in a fingerprint
        found = [
            sorted(elsewhere.glob(word)) if word.startswith("runs/") else [] for word in command
        ]
        given = [
            str(there[0].relative_to(elsewhere)) if there else word
            for there, word in zip(found, command, strict=True)
        ]
        assert said(str(place / "bin/attnprobe"), *given)
    assert {"report.html", "evidence.zip", "runs"} <= {path.name for path in elsewhere.iterdir()}
