"""The script of docs/lightning.md beside the command, on one process and on two."""

import csv
import os
import random
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

import attnprobe
from attnprobe.results.directory import RunDirectory
from tests.models.pretrained.families import checkpoint
from tests.small_runs import command_line

PAGE = (Path(__file__).parents[2] / "docs" / "lightning.md").read_text(encoding="utf-8")
SCRIPT, PRETRAINED, OTHER_BATCHES, METRICS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
(COMMAND,) = re.findall(r"^```bash\n(.*?)^```", PAGE, re.M | re.S)
# few texts at a time, so that there are batches to share
SHOWN = SCRIPT
SCRIPT = SCRIPT.replace('tokenizer="whitespace"', 'tokenizer="whitespace", eval_batch_size=10')
ON_TWO = SCRIPT.replace('accelerator="cpu",', 'accelerator="cpu", devices=2, strategy="ddp_fork",')
ON_TWO = re.sub(r"logger=\[.*\]", "logger=False", ON_TWO)
ON_TWO = ON_TWO.replace('"by_hand"', '"on_two"').replace("trainer.save_checkpoint", "()  # ")
# trained once: two processes would train another model
ON_TWO = ON_TWO.replace("trainer.fit(model, datamodule=data)", "model.load_state_dict(WEIGHTS)")
ON_TWO = ON_TWO.replace(
    "trainer = L.Trainer(",
    'WEIGHTS = torch.load("reviews.ckpt")["state_dict"]\n    trainer = L.Trainer(',
)
# one process for both scripts, whose imports take longer than they
BOTH = """
import runpy

for script in ("reviews.py", "on_two.py"):
    runpy.run_path(script, run_name="__main__")
"""


def executed(folder, *command, timeout=1000):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), str(folder)]),
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
    }
    result = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout
    )
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page's folder, after the script, the same on two processes, and the command."""
    place = tmp_path_factory.mktemp("reviews")
    words = random.Random(0)
    opinions = {"up": ["good", "great", "fine"], "down": ["bad", "dull", "poor"]}
    filler = "the film was seen by us at a small old place in town with some friends of ours"
    with (place / "reviews.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["review", "stars"])
        for number in range(131):
            stars = ("up", "down")[number % 2]
            text = words.sample(filler.split(), words.randint(3, 9))
            text.insert(words.randint(0, len(text)), words.choice(opinions[stars]))
            rows.writerow([" ".join(text), stars])
    (place / "reviews.py").write_text(SCRIPT)
    (place / "on_two.py").write_text(ON_TWO)
    executed(place, sys.executable, "-c", BOTH)
    words = shlex.split(COMMAND.replace("\\\n", " "))
    assert words[:3] == ["python", "-m", "attnprobe"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(place)
        done = command_line(place, *words[3:], "figures=false", "data.eval_batch_size=10")
        sys.modules.pop("reviews", None)
    assert done.returncode == 0, done.stderr
    return place


def numbers(run):
    """All of a run's numbers, without what names the run."""
    columns = ["probe", "metric", "example_id", "step", "value", "site"]
    table = attnprobe.read_results(run)[columns]
    return table[table.probe != "training"].astype({"probe": str, "metric": str, "site": str})


def test_script_and_command_leave_the_same_numbers(folder):
    by_hand = numbers(folder / "by_hand")
    assert set(by_hand.probe) == {"permutation", "erasure", "performance"}
    assert by_hand[by_hand.metric == "accuracy"].value.item() > 0.8
    by_command = numbers(folder / "by_command")
    assert_frame_equal(by_hand, by_command, check_exact=True)
    examples = [attnprobe.read_examples(folder / run) for run in ("by_hand", "by_command")]
    assert_frame_equal(*examples, check_exact=True)


def test_two_processes_leave_the_files_of_one(folder):
    # three batches: one of the second process's two repeats the first
    assert RunDirectory(folder / "on_two").manifest()["counts"]["test"]["kept"] == 26
    for path in sorted((folder / "by_hand").rglob("*.parquet")):
        other = folder / "on_two" / path.relative_to(folder / "by_hand")
        assert other.read_bytes() == path.read_bytes(), path.name


def test_every_logger_has_the_headline_numbers(folder):
    (metrics,) = (folder / "logs").rglob("metrics.csv")
    assert {"permutation/median_tvd", "test_loss"} <= set(pd.read_csv(metrics))
    assert list((folder / "logs").rglob("events.out.tfevents*"))
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))


def test_a_pretrained_model_is_examined_as_the_page_says(folder, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(folder)
    (folder / "my_bert").symlink_to(checkpoint("distilbert", ("up", "down")))
    quiet = 'accelerator="cpu", logger=False, enable_progress_bar=False, '
    script = PRETRAINED.replace("L.Trainer(", f"L.Trainer({quiet}")
    defined = {"__name__": "page"}
    exec(compile(SHOWN, "lightning.md", "exec"), defined)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*LeafSpec.*")
        exec(compile(script, "lightning.md", "exec"), defined)
    assert set(numbers(folder / "pretrained").probe) == {"permutation", "performance"}
    assert len(attnprobe.read_examples(folder / "pretrained")) == 131


def test_the_other_code_of_the_page_runs(folder):
    defined = {"__name__": "page"}
    exec(compile(SHOWN, "lightning.md", "exec"), defined)
    exec(compile(OTHER_BATCHES + METRICS, "lightning.md", "exec"), defined)
    import torch

    ids = torch.tensor([[4, 5, 0], [6, 7, 8]])
    batch = defined["Mine"](10, 2).read(
        {"input_ids": ids, "label": torch.tensor([1, 0])}, torch.arange(2)
    )
    assert batch.ids.tolist() == [[3, 4, 5, 3, 0], [3, 6, 7, 8, 3]]
    assert batch.content.sum(1).tolist() == [2, 3]
