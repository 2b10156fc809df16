from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Subject
from attnprobe.models.base import Model
from attnprobe.probes.base import Measurement
from attnprobe.probes.permutation import Permutation
from attnprobe.probes.sites import Sites, maps, means, sites_table
from tests.models.pretrained.families import batch_of, classifier
from tests.probes.tables import subject_of

OF_EVERY_SITE = {
    "attention",
    "max_attention",
    "evenness",
    "special_mass",
    "median_tvd",
    "uniform_tvd",
    "top_tvd",
    "top_flips",
    "tau_gradient",
    "tau_leave_one_out",
}
"""Its metrics where the data have no rationales."""


@dataclass(frozen=True)
class Examined:
    """A model, a batch as it reads it, and (metric, site) → measurement."""

    model: Model
    subject: Subject
    measurements: dict[tuple[str, str], Measurement]

    @property
    def batch(self):
        return self.subject.batch


@pytest.fixture(scope="module")
def examined():
    pytest.importorskip("transformers")
    model = classifier("bert")
    batch = batch_of(model)
    model.prepare(batch)
    subject = subject_of(model, batch)
    probe = Sites(samples=4, importances=["gradient", "leave_one_out"])
    results = probe.examine(subject, Draws(0, "sites"))
    measurements = {
        (result.metric, result.site): result
        for result in results
        if isinstance(result, Measurement)
    }
    return Examined(model, subject, measurements)


def by_hand(model, batch, layer, head, row_of):
    """Probabilities of the library's own network, with the pooled row of one head exchanged."""
    from transformers.models.bert import modeling_bert

    original = modeling_bert.eager_attention_forward
    calls = []

    def exchanged(module, query, key, value, mask, **settings):
        output, weights = original(module, query, key, value, mask, **settings)
        calls.append(weights)
        if len(calls) - 1 == layer:
            weights = weights.clone()
            for text in range(len(weights)):
                weights[text, head, 0] = row_of(text, weights[text, head, 0])
            output = (weights @ value).transpose(1, 2)
        return output, weights

    modeling_bert.eager_attention_forward = exchanged
    model.network.set_attn_implementation("eager")
    try:
        mask = (batch.piece_word != -2).long()
        with torch.no_grad():
            outputs = model.network(
                input_ids=batch.pieces, attention_mask=mask, token_type_ids=batch.piece_kind
            )
            return outputs.logits.softmax(-1)
    finally:
        modeling_bert.eager_attention_forward = original
        model.network.set_attn_implementation("attnprobe")


HEADS = [(0, 3), (1, 0), (2, 2)]


def evened(weights, word_of_piece):
    """The same weight for each word, shared out over its pieces as before; others as they are."""
    words = [word_of_piece == word for word in word_of_piece.unique() if word > 0]
    masses = [weights[pieces].sum() for pieces in words]
    mean = sum(masses) / len(masses)
    result = weights.clone()
    for pieces, mass in zip(words, masses, strict=True):
        result[pieces] = weights[pieces] / mass * mean
    return result


@pytest.mark.parametrize(("layer", "head"), HEADS)
def test_an_even_head_is_that_of_the_librarys_own_code(examined, layer, head):
    batch = examined.batch

    def keep(text, row):
        return row

    def even(text, row):
        return evened(row, batch.piece_word[text])

    before = by_hand(examined.model, batch, layer, head, keep)
    after = by_hand(examined.model, batch, layer, head, even)
    expected = (after - before).abs().sum(-1) / 2
    distance = examined.measurements["uniform_tvd", f"layer {layer}, head {head}"].value
    assert_close(distance, expected, atol=1e-9, rtol=0)
    assert expected.max() > 1e-4


@pytest.mark.parametrize(("layer", "head"), HEADS)
def test_the_special_mass_of_a_head_is_what_lies_on_no_word(examined, layer, head):
    batch = examined.batch
    expected = []

    def watch(text, row):
        is_special = batch.piece_word[text] == -1
        expected.append(row[is_special].sum())
        return row

    by_hand(examined.model, batch, layer, head, watch)

    mass = examined.measurements["special_mass", f"layer {layer}, head {head}"].value
    assert_close(mass, torch.stack(expected).double())


@pytest.mark.parametrize("metric", ["median_tvd", "max_attention"])
def test_the_last_layer_is_what_the_models_own_probes_measure(examined, metric):
    results = Permutation(samples=4).examine(examined.subject, Draws(0, "sites"))
    numbers = {result.metric: result.value for result in results}
    at_last_layer = examined.measurements[metric, "layer 2"].value
    assert_close(at_last_layer, numbers[metric])


def test_every_site_has_all_metrics_and_one_weight_per_word(examined):
    content = examined.batch.content
    assert examined.measurements["attention", "layer 0, head 1"].step.shape == content.shape
    assert {metric for metric, _ in examined.measurements} == OF_EVERY_SITE


def test_the_only_word_of_a_text_cannot_be_left_out(examined):
    distance = examined.measurements["top_tvd", "layer 1"].value
    assert distance.isnan().tolist() == [False, False, True]


def table():
    lines = []
    for metric in ("median_tvd", "tau_gradient"):
        for layer in (0, 1):
            sites = [f"layer {layer}", f"layer {layer}, head 0", f"layer {layer}, head 1"]
            for number, site in enumerate(sites):
                for example_id in (0, 2):
                    value = float(layer + number / 10 + example_id)
                    lines.append((metric, site, example_id, value))
    identity = {
        "run_id": "r",
        "experiment": "sites",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
    }
    rows = pd.DataFrame(lines, columns=["metric", "site", "example_id", "value"])
    return rows.assign(**identity, probe="sites", step=np.nan)


def test_the_mean_of_the_texts_stands_at_its_layer_and_head():
    ((_, rows),) = means(table())
    assert rows["layer"].tolist() == [0, 0, 0, 1, 1, 1]
    assert rows["head"].tolist() == [-1, 0, 1, -1, 0, 1]
    assert_allclose(rows["median_tvd"], [1.0, 1.1, 1.2, 2.0, 2.1, 2.2])
    assert set(rows["n"]) == {2}


def test_the_table_of_sites_has_a_line_for_each():
    ((_, rows),) = means(table())
    lines = sites_table(table())
    assert lines["head"].tolist() == ["all", "0", "1", "all", "0", "1"]
    assert_allclose(lines["τ with gradient"], rows["tau_gradient"])


def test_the_picture_has_a_map_of_each_measure_with_its_numbers():
    figure = maps(table(), None)
    first, second = figure.axes
    assert first.get_title("left").startswith("weights permuted: TVD")
    assert second.get_title("left").startswith("τ with gradient")
    drawn = first.images[0].get_array()
    assert drawn[1, 0] == 2.1  # layer 1, head 0
    assert drawn[0, 3] == 1.0  # layer 0, all heads
    assert drawn.mask[:, 2].all()  # a gap between the heads and all of them


@pytest.mark.parametrize("site", ["", "layer 1000000000, head 0", "layer x"])
def test_a_table_whose_sites_are_no_layers_is_refused(site):
    with pytest.raises(UserError, match="names no layer"):
        maps(table().assign(site=site), None)
