import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest

from attnprobe.cli.main import main
from attnprobe.results.table import read_examples
from tests.models.pretrained.families import TEXTS, checkpoint
from tests.small_runs import FEW_PASSES, NARROW, command_line

PAGE = (Path(__file__).parents[2] / "docs" / "guards_and_rerankers.md").read_text(encoding="utf-8")
QUICK = ("figures=false", "trainer.accelerator=cpu", *FEW_PASSES)


def reranker(folder):
    """A tiny checkpoint of one score, and pairs for it."""
    shutil.copytree(checkpoint("bert", ("score",)), folder / "my_reranker")
    rows = [("query", "passage", "relevant", "domain")]
    for number in range(30):
        text = TEXTS[number % len(TEXTS)]
        query, *_ = text.split()
        if number % 2:
            rows.append((query, text, "relevant", "news"))
        else:
            rows.append((query, text, "irrelevant", "law"))
    with (folder / "pairs.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """What the page's code defines, its commands carried out where they stand."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("guards")
    reranker(folder)
    defined = {"__name__": "guards"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, code in re.findall(r"^```(bash|python)\n(.*?)^```", PAGE, re.M | re.S):
            if language == "python":
                exec(compile(code, "docs/guards_and_rerankers.md", "exec"), defined)
                continue
            for line in code.replace("\\\n", " ").splitlines():
                carry_out(folder, shlex.split(line))
    return defined | {"folder": folder}


def carry_out(folder, words):
    """A command of the page, with fewer passes."""
    program, command, *further = words
    assert program == "attnprobe"
    if command == "report":
        main([command, *further])
        return
    is_trained = "model=pretrained" not in further
    done = command_line(folder, *further, *QUICK, *([NARROW] if is_trained else []))
    assert done.returncode == 0, done.stderr


def test_the_guards_answer_is_divided_by_class_and_channel(names, monkeypatch):
    monkeypatch.chdir(names["folder"])  # the page's paths are relative
    divisions = {
        slices.by: {row.name for row in slices.rows}
        for slices in names["slices_of"](names["group"])
    }
    assert divisions == {"predicted class": {"allow", "block"}, "channel": {"chat", "forum"}}
    assert "By channel" in names["page"]


def test_the_reranker_is_examined_over_the_passage(names):
    examples = read_examples(names["folder"] / "runs/reranker")
    assert set(examples["slice"]) == {"law", "news"}
    passages = [" ".join(tokens) for tokens in examples["tokens"][:3]]
    assert passages == [*TEXTS[:3]]
