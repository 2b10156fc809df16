import re
import shlex
from pathlib import Path

import pytest
import torch

from attnprobe.results.table import read_results
from tests.small_runs import FEW_PASSES, NARROW, SMALL, command_line

PAGE = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page's code defines, its commands carried out where they stand; a smaller model."""
    folder = tmp_path_factory.mktemp("coming")
    defined = {"__name__": "coming_from"}
    smaller = [word for word in SMALL if not word.startswith(("data.source.", "training."))]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, code in re.findall(r"^```(bash|python)\n(.*?)^```", PAGE, re.M | re.S):
            if language == "python":
                exec(compile(code, "docs/coming_from.md", "exec"), defined)
                continue
            words = shlex.split(code.replace("\\\n", " "))
            assert words[:3] == ["python", "-m", "attnprobe"]
            is_new = not any(word.startswith("run=") for word in words)
            quick = [*smaller, NARROW] if is_new else ["figures=false", *FEW_PASSES]
            done = command_line(folder, *words[3:], *quick)
            assert done.returncode == 0, done.stderr
    return defined | {"folder": folder}


def test_captums_scores_are_gradient_times_input(names):
    classifier = names["run"].classifier
    vectors = classifier.inputs(names["batch"]).detach().requires_grad_()
    outputs = classifier.outputs_from(names["batch"], vectors)
    (gradient,) = torch.autograd.grad(outputs.logits.max(), vectors)
    expected = (gradient * vectors).sum(-1)[0, 1:-1].tolist()
    assert list(names["scores"].values()) == pytest.approx(expected, abs=1e-6)
    assert list(names["scores"]) == names["text"]


def test_the_test_of_words_is_added_to_the_same_run(names):
    assert len(read_results(names["folder"] / "runs/coming", probe="swaps"))
    assert names["explanation"]["prediction"].notna().all()
