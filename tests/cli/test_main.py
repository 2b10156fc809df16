import os
import subprocess
import sys
from contextlib import suppress
from importlib import import_module

import pytest

from attnprobe import __version__
from attnprobe.cli.main import COMMANDS, main
from attnprobe.core.printing import WIDTH
from attnprobe.runs.run import run
from tests.small_runs import FEW_PASSES, SMALL, SMALL_ADVERSARY, small_run

HEAVY = ("torch", "lightning", "datasets", "spacy", "pandas", "scipy", "wandb", "matplotlib")
WITHOUT = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in {(*HEAVY, "hydra", "pyarrow", "numpy", "rich")}:
            sys.stderr.write(f"{{name}} was imported")
            raise SystemExit(7)

sys.meta_path.insert(0, Refuse())
sys.argv[0] = "attnprobe"
import attnprobe
from attnprobe.cli.main import main
main()
"""


def command(*arguments, folder=None):
    """The command, in a process in which nothing heavy may be imported."""
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments], capture_output=True, text=True, cwd=folder
    )


def test_the_version_imports_nothing_heavy():
    version = command("--version")
    assert version.returncode == 0
    assert version.stdout == f"attnprobe {__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_imports_nothing_heavy(arguments):
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    for name in COMMANDS:
        assert f"    {name}" in done.stdout
    examples = done.stdout.count("\n  attnprobe ")
    assert examples >= 5
    assert "+experiment" in done.stdout


AUDIT = ["audit", "a.csv", "--text", "t", "--label", "l"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["adit"],
            "adit: there is no such command; did you mean audit? "
            "Known: audit, run, compare, report, ",
        ),
        (["frobnicate"], "frobnicate: there is no such command. Known: "),
        (["+experiment=jain"], "settings go with run: attnprobe run +experiment=jain"),
        (["-m"], "expected a command first"),
        (
            ["audit"],
            "audit: the following arguments are required: FILE, --text, --label; "
            "attnprobe audit --help says more",
        ),
        (
            ["audit", "a.csv", "--text", "t", "--lable", "l"],
            "audit: --lable: there is no such option; did you mean --label?",
        ),
        ([*AUDIT, "--modl", "cnn"], "--modl: there is no such option; did you mean --model?"),
        ([*AUDIT, "cnn"], "cnn: expected an option of this command, or a setting"),
        (
            [*AUDIT, "--fail-if", "__import__('os')"],
            "argument --fail-if: \"__import__('os')\": expected NAME < NUMBER",
        ),
        (["compare", "a"], "compare: the following arguments are required: B"),
        (["explain"], "explain: the following arguments are required: RUN"),
        (["\x1b[31m"], "\\x1b[31m: there is no such command"),
    ],
)
def test_a_mistake_is_one_line_and_imports_nothing_heavy(arguments, message, tmp_path):
    done = command(*arguments, folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("attnprobe: ")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["attnprobe"])
    with suppress(SystemExit):
        main([name, "--help"])
    help_text = capsys.readouterr().out
    assert f"attnprobe {name}" in help_text
    if name != "run":  # it lists every choice, a line for each group
        assert max(map(len, help_text.splitlines())) <= 80


@pytest.mark.parametrize("arguments", [("--help",), ("audit", "--help")])
def test_a_reader_who_leaves_at_once_sees_no_traceback(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *arguments],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": ""},
    )
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 1


def test_the_list_of_commands_fits_a_terminal(capsys):
    main(["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_run_looks_like_the_module_to_whoever_starts_it_again(monkeypatch):
    # Lightning starts the further processes of a training as `python -m` this, or as this script
    module = import_module("attnprobe.__main__")
    monkeypatch.setattr(module, "main", lambda: None)
    monkeypatch.setattr(sys, "argv", ["/usr/bin/attnprobe"])
    script = sys.modules["__main__"]
    monkeypatch.setattr(script, "__spec__", None)
    main(["run", "seed=1"])
    assert script.__spec__.name == "attnprobe.__main__"
    assert sys.argv[1:] == ["seed=1"]


@pytest.fixture(scope="module")
def folder_with_runs(tmp_path_factory):
    """A folder with two finished runs and a file of texts."""
    folder = tmp_path_factory.mktemp("narrow")
    lines = [
        f"the film was {('good', 'bad')[row % 2]} at number {row},{row % 2}" for row in range(80)
    ]
    (folder / "reviews.csv").write_text("\n".join(["review,stars", *lines]))
    for seed in (0, 1):
        run(small_run(folder / "runs", f"seed={seed}", "model=average", probes=PROBES))
    return folder


AUDIT = ("reviews.csv", "--text", "review", "--label", "stars", "--minutes", "1")
SMALL_AUDIT = (
    "model=average",
    "study.seeds=[1]",
    "training.epochs=2",
    "data.embedding_size=12",
    "figures=false",
    *SMALL_ADVERSARY,
    *FEW_PASSES,
)
PROBES = "[permutation,swaps]"


@pytest.mark.parametrize(
    "words",
    [
        ["run", *SMALL, "model=average", f"probe={PROBES}", "seed=2"],
        ["run", *SMALL, "model=average", f"probe={PROBES}", "seed=3", "verbose=true"],
        ["report", "runs", "-o", "report.html"],
        ["audit", *AUDIT, "--dry-run"],
        ["audit", *AUDIT, *SMALL_AUDIT],
    ],
    ids=["run", "verbose", "report", "dry", "audit"],
)
def test_no_line_without_a_terminal_is_wider_than_80_columns(
    words, folder_with_runs, monkeypatch, capsys, no_pictures
):
    monkeypatch.chdir(folder_with_runs)
    monkeypatch.setattr("sys.argv", ["attnprobe"])
    monkeypatch.setattr("attnprobe.__main__.DRY_RUN", [])
    main(words)
    printed = capsys.readouterr()
    lines = (printed.out + printed.err).splitlines()
    assert lines
    assert [line for line in lines if len(line) > WIDTH] == []
