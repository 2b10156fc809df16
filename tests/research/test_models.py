import json

import numpy as np
import pytest
from hydra.utils import instantiate

from attnprobe.runs.composition import composing
from research.models import audits
from research.models.audits import SHARES, stability_curves
from research.models.cells import valid_settings
from research.models.validity import plausible


def write_attentions(folder, cell, models):
    for seed, texts in enumerate(models):
        facts = {"weights": [weights.tolist() for weights in texts]}
        (folder / f"valid-{cell}-own-{seed}.json").write_text(json.dumps(facts))


def test_the_curve_of_stability_goes_from_a_random_order_to_the_very_same_attention(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(audits, "AUDITS", 15)
    same = [np.random.default_rng(text).dirichlet(np.full(8, 0.3)) for text in range(60)]
    write_attentions(tmp_path, "learned", [same] * 10)
    curve = stability_curves(tmp_path, "learned").set_index(["effect", "seeds"])
    assert curve["yes"].loc[0.0].max() == 0
    assert curve["yes"].loc[1.0].min() == 1
    assert curve.index.unique("effect").tolist() == pytest.approx(
        SHARES, abs=0.1
    )  # as the texts differ


def test_weight_on_the_marks_is_none_on_those_of_another_text(tmp_path):
    with composing():
        data = instantiate(valid_settings("learned")["data"], seed=0)
    data.setup("fit")
    part = data.splits["test"]
    batch = part[range(len(part))]
    marks = [row[words].numpy() for row, words in zip(batch.rationale, batch.content, strict=True)]
    even = [np.full(len(mark), 1 / len(mark)) for mark in marks]
    share = np.linspace(0.5, 1, len(marks))
    right = [
        mass * mark / mark.sum() + (1 - mass) * rest
        for mass, mark, rest in zip(share, marks, even, strict=True)
    ]
    write_attentions(tmp_path, "learned", [right, even])
    counts = plausible(tmp_path, "learned")
    assert (counts["models"], counts["yes, own marks"], counts["yes, shifted"]) == (2, 1, 0)
