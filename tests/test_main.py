import subprocess
import sys

import pytest

from tests.runs import SMALL


def attnprobe(folder, *arguments):
    return subprocess.run(
        [sys.executable, "-m", "attnprobe", *arguments], cwd=folder, capture_output=True, text=True, timeout=300
    )


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
    ],
)
def test_a_mistake_ends_with_one_message(tmp_path, arguments, message):
    done = attnprobe(tmp_path, *SMALL[4:], *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.*"))
