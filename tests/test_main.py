import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnprobe import __version__
from attnprobe.report.page.build import write_report
from tests.small_runs import SMALL, command_line

TABLE = Path(__file__).parent / "data" / "reviews.csv"


def test_the_command_line_from_any_folder(tmp_path):
    settings = [*SMALL, "+experiment=jain_adversarial", "verbose=true", "model=average"]
    settings += ["training.epochs=1", "probe.adversarial.steps=2", "probe.adversarial.restarts=1"]
    command = [sys.executable, "-m", "attnprobe", *settings]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "median TVD under permutation" in done.stdout
    assert "results: runs/testbed/average_additive-seed0-" in done.stdout
    assert "figures: " not in done.stdout  # figures=false
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]  # Hydra leaves nothing of its own

    (directory,) = (tmp_path / "runs" / "testbed").glob("average_additive-seed0-*")
    done = command_line(tmp_path, *settings, "page=here.html", "on_finished=skip")
    assert done.returncode == 0, done.stderr
    assert "\npage: here.html\n" in done.stdout
    there = tmp_path / "there" / "here.html"
    there.parent.mkdir()
    write_report([directory], there)
    pages = []
    for page in (tmp_path / "here.html", there):
        text = page.read_text(encoding="utf-8").replace(f"{tmp_path}/", "").rpartition("<!--")[0]
        pages.append(re.sub(r"on [\d-]+ \d\d:\d\d UTC", "", text))  # when it was written
    assert len(pages[0]) > 10_000
    assert pages[0] == pages[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.colour=red"], "data.colour=red: there is no such setting. Known here: "),
        (["trainer.device=2"], "trainer.device=2: there is no such setting; did you mean devices?"),
        (["modl=lstm"], "modl=lstm: there is no such setting; did you mean model?"),
        (
            ["probe=[single_weight]", "probe.permutation.samples=9"],
            "probe.permutation.samples=9: permutation is not chosen: add it to probe=[…], or leave "
            "this setting out",
        ),
        (
            ["probe=[permutation]", "probe.swaps.passes=100"],
            "probe.swaps.passes=100: swaps is not chosen: add it to probe=[…], or leave this "
            "setting out",
        ),
        (
            ["data=codes", "data.source.lenght=30"],
            "data.source.lenght=30: there is no such setting; did you mean length? Known here: "
            "_target_, train_size, validation_size, test_size, codes, length, ",
        ),
        (
            ["model=pretrained", "model.encoder.hidden_size=9"],
            "it belongs to another choice of model",
        ),
        (
            ["probe=[permuation]"],
            "there is no probe/permuation in conf/; did you mean permutation?",
        ),
        (["data=sts"], "data=sts: there is no data/sts in conf/; did you mean sst?"),
        (["+experiment=jane"], "there is no experiment/jane in conf/; did you mean jain?"),
        (
            ["experiment=jain"],
            "experiment=jain: an experiment is chosen with a plus, +experiment=NAME, of ",
        ),
        (["experiment=-1"], "experiment=-1: expected the name of a choice"),
        (["seed=${nope}"], "seed refers to ${nope}, which is not a setting"),
        (["model.encoder._target_=???"], "model.encoder._target_=???: a value must be given"),
        (
            ["model=plm_icd", "training=finetune"],
            "model.path=???: a value must be given: model.path=FOLDER, a folder as save_",
        ),
        (
            ["data.text=a(b"],
            "data.text=a(b: the value cannot be read; put the name in quotes: data.text='\"a(b\"'",
        ),
        (["data.text=\x1b[31m"], "put the name in quotes"),
        (
            ["study.settings=[training.epochs=6]"],
            "the list cannot be read; put each element that has more than letters and digits in "
            "quotes, such as \"study.settings=['a=1','b=[c]']\"",
        ),
        (
            ["data=files", f"data.path={TABLE}", "data.text=评论"],
            "data.text=评论: there is no such column",
        ),
        (
            ["data=agnews_pair", "data.labels={World: 0, Business: 1}"],
            "place: '~data.labels' '+data.labels={World: 0, Business: 1}'",
        ),
        (["data.filters={label: 1}"], "place: '~data.filters' '+data.filters={label: 1}'"),
        (["data.filters.label=1"], "add it with a plus: '+data.filters.label=1'"),
        (
            ["-m", "seed=1,2", "output=/proc/nowhere"],
            "cannot write to /proc/nowhere: No such file or directory. Choose a writable place "
            "with output=…",
        ),
        (["foo"], "foo: expected setting=value, such as seed=1"),
        (["page=report"], "page=report: expected a name that ends in .html (such as report.html)"),
        (["page=a.html", "+experiment=audit"], "page=a.html is of a single run: leave it out"),
        (["data=files", "data.path=nowhere.csv"], "nowhere.csv does not exist"),
        (
            ["hydra.output_subdir=.hydra"],
            "hydra.output_subdir=.hydra: Hydra would write over files",
        ),
    ],
)
def test_a_mistake_ends_with_one_message(tmp_path, arguments, message):
    done = command_line(tmp_path, *SMALL[4:], *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("attnprobe: ")
    assert done.stderr[:-1].isprintable()
    assert not list(tmp_path.iterdir())


WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "numpy", "pandas"):
            sys.stderr.write(name + " was imported")
            raise SystemExit(7)

sys.meta_path.insert(0, Refuse())
from attnprobe.__main__ import main
main()
"""


def test_a_mistake_is_answered_before_what_it_does_not_need_is_imported(tmp_path):
    argument = "probe.permutation.sampels=9"
    command = [sys.executable, "-c", WITHOUT, argument]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("\n")
    assert f"{argument}: there is no such setting; did you mean samples?" in done.stderr


def test_help_shows_examples_and_every_choice(tmp_path):
    done = command_line(tmp_path, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\nattnprobe run ") == 5
    assert re.search("^experiment: .*audit, .*jain, ", done.stdout, re.M)


def test_the_version(tmp_path):
    done = command_line(tmp_path, "--version")
    assert done.returncode == 0
    assert done.stdout == f"attnprobe {__version__}\n"


def test_a_sweep_in_one_process_goes_on_after_a_failure(tmp_path):
    shared = [*SMALL, "launcher=inline", "model=average", "probe=[permutation]"]
    no_text_is_as_long = "data.min_length=1000,0"  # which only the data can show
    done = command_line(tmp_path, "-m", *shared, no_text_is_as_long)
    assert done.returncode == 1
    assert "data.min_length=1000" in done.stderr
    assert "Traceback" not in done.stderr
    assert "results: runs/testbed/average_additive-seed0-" in done.stdout
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"logs", "testbed"}


@pytest.mark.parametrize("launcher", ["inline", "local"])
def test_a_sweep_refuses_a_mistake_in_its_last_job_before_the_first_begins(tmp_path, launcher):
    done = command_line(tmp_path, "-m", *SMALL, f"launcher={launcher}", "seed=0,abc")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "attnprobe: seed=abc: expected a whole number of at least 0" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("runs/testbed*"))


PARTS = """
from attnprobe.models.encoders import LSTMEncoder

class Fussy(LSTMEncoder):
    def __init__(self, input_size, width=1):
        if width != 8:
            raise TypeError(f"width must be eight,\\nnot {width}")
        super().__init__(input_size, hidden_size=width)

class Broken(LSTMEncoder):
    def forward(self, *arguments):
        raise LookupError("a fault of the program")
"""


@pytest.fixture
def their_parts(tmp_path, monkeypatch):
    """Encoders of somebody else's, in a module that can be imported."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "their_parts.py").write_text(PARTS)


@pytest.mark.usefixtures("their_parts")
def test_somebody_elses_class_that_refuses_its_arguments_is_one_line(tmp_path):
    width = ["~model.encoder.hidden_size", "+model.encoder.width=7"]
    done = command_line(tmp_path, *SMALL, "model.encoder._target_=their_parts.Fussy", *width)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "attnprobe: model.encoder.width=7: their_parts.Fussy cannot be constructed with width, "
        "input_size (TypeError: width must be eight, not 7). HYDRA_FULL_ERROR=1 shows where"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("their_parts")
def test_a_fault_of_the_program_has_a_traceback(tmp_path):
    done = command_line(tmp_path, *SMALL, "model.encoder._target_=their_parts.Broken")
    assert done.returncode == 1
    assert 'their_parts.py", line 12, in forward' in done.stderr
    assert done.stderr.splitlines()[-1] == "LookupError: a fault of the program"


def test_a_reader_who_has_seen_enough_gets_no_traceback():
    with subprocess.Popen(
        [sys.executable, "-m", "attnprobe", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1
