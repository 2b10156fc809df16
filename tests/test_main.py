import subprocess
import sys

import pytest

from tests.runs import SMALL


def attnprobe(folder, *arguments):
    return subprocess.run([sys.executable, "-m", "attnprobe", *arguments], cwd=folder, capture_output=True, text=True)


def test_the_command_line_from_any_folder(tmp_path):
    done = attnprobe(tmp_path, *SMALL, "+experiment=jain_adversarial", "probe.adversarial.steps=5")
    assert done.returncode == 0, done.stderr
    assert "median TVD under permutation" in done.stdout
    assert "results: runs/testbed/lstm_additive-seed0-" in done.stdout
    assert "figures: " not in done.stdout  # figures=false
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]  # Hydra leaves nothing of its own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["data.colour=red"], "Could not override 'data.colour'"),
        (["+experiment=jane"], "Could not find 'experiment/jane'"),
        (["data=files"], "data.path"),
        (["data=files", "data.path=nowhere.csv"], "nowhere.csv"),
        (["logger.name=telegraph"], "logger.name=telegraph"),
        (["data.max_tokens=0"], "data.max_tokens=0: expected at least 1"),
    ],
)
def test_a_mistake_ends_with_one_message(tmp_path, arguments, message):
    done = attnprobe(tmp_path, *SMALL[4:], *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.*"))


def test_a_sweep_in_one_process_goes_on_after_a_failure(tmp_path):
    sweep = ["-m", *SMALL, "launcher=inline", "model=average", "probe=[permutation]", "data.max_tokens=0,4000"]
    done = attnprobe(tmp_path, *sweep)
    assert done.returncode == 1
    assert "data.max_tokens=0: expected at least 1" in done.stderr
    assert "Traceback" not in done.stderr
    assert "results: runs/testbed/average_additive-seed0-" in done.stdout
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"logs", "testbed"}
