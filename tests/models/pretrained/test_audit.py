"""The audit's one line on a checkpoint that a plain loop fine-tuned and this project did not: four labels, odd names."""

import csv
import json
import random

import pytest
import torch

from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.studies import carry_out_study
from tests.models.pretrained.families import WORDS, checkpoint
from tests.runs import composed

transformers = pytest.importorskip("transformers")
LABELS = ("2 – so-so", "Ärger!", "very Bad", "GREAT")
IN_THE_FILE = ("2 – so-so", "ärger!", "very_bad", "great")
"""The same classes as the file writes them."""
SIGNS = ("dull", "fine", "long", "music")


def text(label, draw):
    words = draw.choices([word for word in WORDS if word not in SIGNS], k=draw.randint(3, 8))
    words.insert(draw.randrange(len(words)), SIGNS[label])
    return " ".join(words)


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory):
    """A folder as `save_pretrained` writes it."""
    path = checkpoint("distilbert", LABELS)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(path).train()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    draw, optimizer = random.Random(0), torch.optim.AdamW(network.parameters(), lr=3e-3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for _ in range(40):
            labels = torch.arange(32) % 4
            given = tokenizer([text(label, draw) for label in labels.tolist()], padding=True, return_tensors="pt")
            network(**given, labels=labels).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    folder = tmp_path_factory.mktemp("theirs") / "my model"
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_one_line_audits_it_without_training(fine_tuned, tmp_path, capsys):
    draw, path = random.Random(1), tmp_path / "reviews.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = [(text(number % 4, draw), IN_THE_FILE[number % 4]) for number in range(120)]
        csv.writer(file).writerows([("text", "label"), *rows])
    command = ["+experiment=audit", "model=pretrained", f"model.path='{fine_tuned}'", "training=none", "data=files"]
    command += [f"data.path={path}", f"output={tmp_path / 'runs'}", "trainer.accelerator=cpu"]
    command += ["study.probes=[permutation,single_weight,erasure]"]  # as they all run in test_run.py
    study = carry_out_study(command, lambda overrides: composed(*overrides))
    assert "nothing to train, 3 probes on " in capsys.readouterr().out
    (member,) = json.loads((study / "study.json").read_text())["members"]
    directory = study / member["directory"]
    manifest, examples = RunDirectory(directory).manifest(), read_examples(directory)
    assert set(manifest["classes"]) == set(IN_THE_FILE)
    assert manifest["chosen_epoch"] is None

    # what the library says of the same texts, by name
    network = transformers.AutoModelForSequenceClassification.from_pretrained(fine_tuned).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(fine_tuned)
    names = [LABELS[IN_THE_FILE.index(name)] for name in manifest["classes"]]
    order = [network.config.label2id[name] for name in names]
    with torch.no_grad():
        given = tokenizer([" ".join(tokens) for tokens in examples["tokens"]], padding=True, return_tensors="pt")
        theirs = network(**given).logits.softmax(-1)[:, order]
    ours = torch.tensor([list(row) for row in examples["probability"]])
    torch.testing.assert_close(ours.float(), theirs, atol=1e-5, rtol=0)
    assert (examples["label"] == examples["prediction"]).mean() > 0.9
    results = read_results(directory)
    assert set(results["probe"]) >= {"permutation", "single_weight", "erasure"}
