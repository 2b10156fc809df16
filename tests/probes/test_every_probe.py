import math

import numpy as np
import pytest
import torch

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Subject
from attnprobe.importance.leave_one_out.removal import LeaveOneOut
from attnprobe.probes import __main__ as built_in
from attnprobe.probes.base import DESCRIPTION, Measurement
from tests.probes.tables import marked
from tests.toys import rows_of, toy_batch, toy_classifier, toy_readout

LENGTHS = [7, 12, 3, 1]
WORDS = [
    "<PAD>",
    "<UNK>",
    "<SOS>",
    "<EOS>",
    *np.repeat(["the", "film", "not", "--", "good"], 6).tolist(),
][:30]
IMPORTANCES = ["attention", "random", "gradient_input", "leave_one_out"]
OF_RUNS = {"labels", "novelty", "readouts", "swaps"}
PROBES = sorted(set(built_in.probes()) - {"teacher", "sites"} - OF_RUNS)
"""All but `teacher`, whose settings are its own, and those that need a run."""
SETTINGS = {
    "adversarial": {"restarts": 2},
    "agreement": {"samples": 3},
    "agreement_matrix": {"importances": IMPORTANCES},
    "erasure": {"wins": True},
    "faithfulness": {"importances": IMPORTANCES},
    "sanity": {"importances": IMPORTANCES, "samples": 1},
    "skill": {"samples": 9},
    "soft_erasure": {"importances": IMPORTANCES, "samples": 2},
    "subsets": {"importances": ["attention", "gradient_input"], "most_words": 7},
}
NEAR = {"adversarial": 1e-6, "agreement": 1e-9, "identifiable": 1e-7}
"""How near to each other the numbers are; 1e-10 of all others."""


def texts_of(probe, classifier, batch):
    """(metric, site) → of each text its numbers by their steps."""
    # in float64 throughout, so that the comparison can be sharp
    exact = {"leave_one_out": LeaveOneOut(tolerance=1e-7)}
    subject = Subject(classifier, batch, *toy_readout(classifier, batch), WORDS, exact)
    results = probe.examine(subject, Draws(0, probe.name))
    return {
        (result.metric, result.site): numbers_by_step(result, len(batch))
        for result in results
        if isinstance(result, Measurement)
    }


def numbers_by_step(measurement, count):
    """Of each text the numbers by their steps, without those that have none."""
    value = measurement.value.detach().double().reshape(count, -1)
    step = torch.zeros_like(value)
    if measurement.step is not None:
        step = measurement.step.double().expand_as(value)
    texts = []
    for steps, numbers in zip(step.tolist(), value.tolist(), strict=True):
        pairs = zip(steps, numbers, strict=True)
        texts.append({place: number for place, number in pairs if not math.isnan(place)})
    return texts


@pytest.mark.whole
@pytest.mark.parametrize("name", PROBES)
def test_batch_and_padding_change_no_number(name):
    probe = built_in.probes()[name](**SETTINGS.get(name, {}))
    near = NEAR.get(name, 1e-10)
    classifier = toy_classifier(classes=3, spread=4)
    batch = marked(LENGTHS, classes=3)
    padded_batch = marked(LENGTHS, classes=3, padding=4)

    together = texts_of(probe, classifier, batch)
    padded = texts_of(probe, classifier, padded_batch)

    assert any(any(texts) for texts in together.values())
    if set(DESCRIPTION) <= set(probe.metrics):
        *_, of_one_word = together["max_attention", ""]
        assert together["content_length", ""] == [{0: length} for length in LENGTHS]
        assert of_one_word == {0: pytest.approx(1)}
    for row in range(len(LENGTHS)):
        alone = texts_of(probe, classifier, rows_of(batch, [row]))
        for metric, texts in together.items():
            expected = pytest.approx(texts[row], abs=near, rel=near, nan_ok=True)
            assert padded[metric][row] == expected, metric
            assert alone[metric][0] == expected, metric


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("adversarial", {"epsilon": 1.5}, "epsilon=1.5"),
        ("adversarial", {"curve": [0.1, 2.0]}, "curve"),
        ("agreement_matrix", {"importances": ["attention"]}, "importances=.*two or more"),
        ("correlation", {"importances": ["attention"]}, "importances=.*one or more"),
        (
            "correlation",
            {"ceilings": [["attention", "gradient"]]},
            "ceilings.*neither of them attention",
        ),
        ("erasure", {"importances": ["attention", "attention"]}, "every name once"),
        (
            "faithfulness",
            {"operators": ["blank"]},
            "operators=.*blank.*delete, mask, zeros, mean or attention",
        ),
        ("faithfulness", {"thresholds": [0.0]}, "thresholds.*above 0 and below 1"),
        ("near_ties", {"tolerance": 1.0}, "tolerance=1.0"),
        (
            "novelty",
            {"operators": ["attention"]},
            "operators=.*attention.*delete, mask, zeros or mean",
        ),
        ("subsets", {"most_words": 17}, "most_words=17.*16"),
        ("teacher", {}, "teacher=PATH"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(name, settings, expected):
    with pytest.raises(UserError, match=expected):
        built_in.probes()[name](**settings)


@pytest.mark.parametrize("name", sorted(OF_RUNS))
def test_a_probe_of_other_texts_is_refused_without_a_run(name):
    classifier = toy_classifier()
    batch = toy_batch([4])
    subject = Subject(classifier, batch, *toy_readout(classifier, batch))
    with pytest.raises(UserError, match="only a run has: leave it out"):
        list(built_in.probes()[name]().examine(subject, Draws(0, name)))


@pytest.mark.parametrize(
    "name", sorted(name for name, probe in built_in.probes().items() if probe.one_decision)
)
def test_several_labels_have_no_decision_to_flip(name):
    with pytest.raises(UserError, match="leave it out"):
        built_in.probes()[name]().refuse(toy_classifier(task=Task.MULTI_LABEL))
