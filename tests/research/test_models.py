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
    shares_on_marks = np.linspace(0.5, 1, len(part))
    right = []
    even = []
    texts = zip(batch.rationale, batch.content, shares_on_marks, strict=True)
    for rationale, content, share_on_marks in texts:
        marks = rationale[content].numpy()
        even_weights = np.full(len(marks), 1 / len(marks))
        weights_on_marks = marks / marks.sum()
        right.append(share_on_marks * weights_on_marks + (1 - share_on_marks) * even_weights)
        even.append(even_weights)
    write_attentions(tmp_path, "learned", [right, even])
    counts = plausible(tmp_path, "learned")
    assert counts["models"] == 2
    assert counts["yes, own marks"] == 1
    assert counts["yes, shifted"] == 0
