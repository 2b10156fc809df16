"""Checkpoints that give one score, against `transformers` alone."""

import csv

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained.families import TEXTS, WORDS, batch_of, checkpoint, classifier
from tests.runs import composed

transformers = pytest.importorskip("transformers")
PROBES = (
    "probe=[permutation,adversarial,gradient,leave_one_out,correlation,single_weight,erasure,skill,swaps,agreement]"
)


@pytest.mark.parametrize("family", ["bert", "llama", "deberta-v2", "roberta"])
@pytest.mark.parametrize(("threshold", "scale"), [(0.0, 1.0), (-1.3, 0.25)])
def test_the_second_classs_logit_is_the_score_above_the_threshold(family, threshold, scale):
    labels = ("score",)
    model = classifier(family, labels, class_names=["low", "high"], threshold=threshold, scale=scale)
    assert f"above {threshold:g} are high, the others low" in model.matched
    batch = batch_of(model)
    model.prepare(batch)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint(family, labels)).eval()
    network.config.pad_token_id = model.padding
    with torch.no_grad():
        found = model(batch).logits
        for row, text in enumerate(TEXTS):
            own = network(**model.reader.tokenizer(text, return_tensors="pt")).logits
            assert own.shape == (1, 1)
            expected = torch.tensor([0.0, (float(own) - threshold) / scale])
            torch.testing.assert_close(found[row], expected, atol=1e-5 / scale, rtol=1e-5)
    if family == "bert":
        assert not model.linearised(batch).unknown


@pytest.mark.parametrize(
    ("labels", "settings", "expected"),
    [
        (("n", "p"), {}, r"model.threshold=0.0: expected .*num_labels=1, this one: 2"),
        (("score",), {"class_names": ["a", "b", "c"]}, r"two classes.* they have a, b, c"),
        (("score",), {"class_names": ["low", "high"], "threshold": None}, r"num_labels=1.*with model.threshold"),
    ],
)
def test_what_is_no_score_is_refused(labels, settings, expected):
    with pytest.raises(UserError, match=expected):
        classifier("bert", labels, **{"threshold": 0.0} | settings)


def test_a_run_on_scores_decides_by_the_threshold(tmp_path):
    path = tmp_path / "rated.csv"
    with path.open("w", newline="") as file:
        rows = [(" ".join(WORDS[n % 7 : n % 7 + 3 + n % 4]), ("low", "high")[n % 2]) for n in range(40)]
        csv.writer(file).writerows([("text", "label"), *rows])
    asked = ["model=pretrained", f"model.path={checkpoint('bert', ('score',))}", "model.threshold=0.2", "training=none",
             "data=files", f"data.path={path}", "data.labels=[low, high]", "data.most={test: 8}", f"output={tmp_path}",
             "trainer.accelerator=cpu", "figures=false", PROBES]  # fmt: skip
    directory = run(composed(*asked))
    assert set(read_results(directory)["probe"]) >= set(PROBES[7:-1].split(","))
    network = transformers.AutoModelForSequenceClassification.from_pretrained(checkpoint("bert", ("score",))).eval()
    read = transformers.AutoTokenizer.from_pretrained(checkpoint("bert", ("score",)))
    with torch.no_grad():
        for row in read_examples(directory).itertuples():
            own = float(network(**read(" ".join(row.tokens), return_tensors="pt")).logits)
            assert row.prediction == int(own > 0.2)
        again = load_run(directory).explain(["the film was fine"])["probability"][0]
        own = float(network(**read("the film was fine", return_tensors="pt")).logits)
    assert abs(again["high"] - 1 / (1 + 2.718281828 ** (0.2 - own))) < 1e-5
