import random

import pytest

from attnprobe.results.directory import RunDirectory, find_runs
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.run import run
from tests.models.pretrained.families import WORDS, checkpoint, run_settings
from tests.runs.launching.test_sweep import finish
from tests.small_runs import composed

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
SIGNS = ("dull", "fine", "long", "music")


@pytest.fixture
def settings(tmp_path):
    """A tiny BERT is fine-tuned on four classes, each of which has a sign, a word of its own."""
    draw = random.Random(0)
    plain = [word for word in WORDS if word not in SIGNS]
    rows = []
    for number in range(240):
        sign = SIGNS[number % 4]
        words = draw.choices(plain, k=draw.randint(3, 8))
        words.insert(draw.randrange(len(words)), sign)
        rows.append((" ".join(words), sign))
    return run_settings(
        checkpoint("bert"),
        rows,
        tmp_path,
        "training.epochs=4",
        "training.recipe.optimizer.lr=0.003",
        "data.batch_size=16",
        "probe=[permutation,gradient]",
        training="finetune",
    )


def test_two_devices_fine_tune_together_and_one_examines(settings, tmp_path):
    status, output = finish(tmp_path, *settings, "trainer.devices=2", "data.eval_batch_size=7")
    assert status == 0, output
    assert "unused parameters" not in output
    (directory,) = find_runs(tmp_path)
    examples = read_examples(directory)
    results = read_results(directory)
    per_example = results[results["metric"] == "median_tvd"]["example_id"]
    assert sorted(per_example) == sorted(examples["example_id"])
    assert (examples["label"] == examples["prediction"]).mean() > 0.4  # of four
    assert RunDirectory(directory).manifest()["model_facts"]["differences"]["replaced"] == 0


def test_mixed_precision_trains_and_what_is_examined_is_computed_in_full(settings):
    directory = run(composed(*settings, "trainer.precision=bf16-mixed"))
    examples = read_examples(directory)
    assert (examples["label"] == examples["prediction"]).mean() > 0.4  # of four
    sums = examples["attention"].map(sum)
    assert (sums - 1).abs().max() < 1e-6  # bfloat16 keeps 3 digits
    differences = RunDirectory(directory).manifest()["model_facts"]["differences"]
    assert differences["replaced"] == 0
    assert differences["short way"] < 1e-6
