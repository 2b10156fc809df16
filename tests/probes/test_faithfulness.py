import math

import numpy as np
import pytest
import torch

from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.importance.base import Importance
from attnprobe.importance.word_removal import OPERATORS, predictions_keeping
from attnprobe.probes.faithfulness import GRID, Faithfulness
from tests.importance.subjects import subject_of
from tests.probes.tables import measured
from tests.toys import predict, toy_batch

THRESHOLDS = (0.01, 0.05, 0.1, 0.2, 0.5)


def p_of(subject, row, places, operator):
    """The probability of the predicted class of one text that keeps the words at these places."""
    batch = subject.batch
    model = subject.classifier
    decision = int(subject.outputs.logits[row].argmax())
    ids = batch.ids[row][batch.content[row]].tolist()
    if not places and operator in ("delete", "attention"):
        return math.nan
    if operator == "attention":
        at = batch.content[row].nonzero()[:, 0][places]
        weights = subject.readout.attention.clone()
        weights[row] = 0
        weights[row, at] = (
            subject.readout.attention[row, at] / subject.readout.attention[row, at].sum()
        )
        return subject.readout.predict(weights)[row, decision].item()
    if operator == "delete":
        ids = [ids[place] for place in places]
    elif operator == "mask":
        ids = [one if place in places else UNKNOWN for place, one in enumerate(ids)]
    alone = toy_batch([len(ids)])
    alone.ids[0, 1:-1] = torch.tensor(ids)
    if operator in ("delete", "mask"):
        return predict(model, alone)[0, decision].item()
    inputs = model.inputs(alone).detach().clone()
    replacement = inputs[0, 1:-1].mean(0) if operator == "mean" else 0
    for place in range(len(ids)):
        if place not in places:
            inputs[0, place + 1] = replacement
    return model.outputs_from(alone, inputs).logits.softmax(-1)[0, decision].item()


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_numbers_are_those_of_a_loop_over_texts(operator):
    subject = subject_of(lengths=[7, 11, 1], padding=2)
    found = measured(
        Faithfulness(operators=[operator], importances=["attention", "gradient_input"]), subject
    )
    shares = sorted({*THRESHOLDS, *GRID})
    for name in ("attention", "gradient_input"):
        for row, length in enumerate([7, 11, 1]):
            scores = subject.scores(name)[row][subject.batch.content[row]].tolist()
            order = sorted(range(length), key=lambda place: -scores[place])
            whole = p_of(subject, row, list(range(length)), "zeros")
            drops = {"deletion": [], "insertion": []}
            for share in shares:
                k = math.ceil(share * length - 1e-9)
                drops["deletion"].append(whole - p_of(subject, row, sorted(order[k:]), operator))
                drops["insertion"].append(whole - p_of(subject, row, sorted(order[:k]), operator))
            for kind, aopc in (("deletion", "comprehensiveness"), ("insertion", "sufficiency")):
                curve = found[f"{kind}_{name}_by_{operator}"]
                assert curve.step.tolist() == shares
                np.testing.assert_allclose(
                    curve.value[row].detach().numpy(), drops[kind], atol=1e-9
                )
                mean = np.mean([drops[kind][shares.index(threshold)] for threshold in THRESHOLDS])
                assert found[f"{aopc}_{name}_by_{operator}"].value[row].item() == pytest.approx(
                    mean, nan_ok=True
                )
            on_grid = [drops["deletion"][shares.index(share)] for share in GRID]
            area = np.trapezoid([0, *on_grid], [0, *GRID]) / GRID[-1]
            assert found[f"deletion_area_{name}_by_{operator}"].value[row].item() == pytest.approx(
                area, nan_ok=True
            )


def test_texts_without_a_word_are_undefined_where_one_is_needed():
    subject = subject_of(lengths=[3])
    nothing = torch.zeros_like(subject.batch.content)
    for operator in OPERATORS:
        found = predictions_keeping(subject, nothing, operator)
        assert bool(found.isnan().all()) == (operator in ("delete", "attention"))


def test_the_gap_is_that_of_the_importances_which_should_add_up():
    subject = subject_of()
    found = measured(
        Faithfulness(
            importances=["attention", "integrated_gradients", "kernel_shap"], operators=["zeros"]
        ),
        subject,
    )
    gaps = {name for name in found if name.startswith("completeness_gap_")}
    assert gaps == {"completeness_gap_integrated_gradients", "completeness_gap_kernel_shap"}
    one = subject.importance("integrated_gradients")
    expected = (subject.scores("integrated_gradients").sum(-1) - one.total(subject)).abs()
    torch.testing.assert_close(found["completeness_gap_integrated_gradients"].value, expected)


def test_an_undefined_importance_has_no_numbers():
    class Nowhere(Importance):
        name = "nowhere"
        title = "nowhere"

        def scores(self, subject):
            return torch.full_like(subject.readout.attention, torch.nan)

    found = measured(
        Faithfulness(importances=["nowhere"], operators=["zeros"]),
        subject_of(importances={"nowhere": Nowhere()}),
    )
    assert all(one.value.isnan().all() for name, one in found.items() if "nowhere" in name)
