import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
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


@pytest.fixture(scope="module")
def measured():
    pytest.importorskip("transformers")
    model = classifier("bert")
    batch = batch_of(model)
    model.prepare(batch)
    subject = subject_of(model, batch)
    probe = Sites(samples=4, importances=["gradient", "leave_one_out"])
    found = list(probe.examine(subject, Draws(0, "sites")))
    return (
        model,
        batch,
        subject,
        {(one.metric, one.site): one for one in found if isinstance(one, Measurement)},
    )


def by_hand(model, batch, layer, head, row_of):
    """Probabilities of the library's own network, with the pooled row of one head exchanged."""
    from transformers.models.bert import modeling_bert

    own = modeling_bert.eager_attention_forward
    calls = []

    def exchanged(module, query, key, value, mask, **settings):
        output, weights = own(module, query, key, value, mask, **settings)
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
            given = {
                "input_ids": batch.pieces,
                "attention_mask": mask,
                "token_type_ids": batch.piece_kind,
            }
            return model.network(**given).logits.softmax(-1)
    finally:
        modeling_bert.eager_attention_forward = own
        model.network.set_attn_implementation("attnprobe")


@pytest.mark.parametrize(("layer", "head"), [(0, 3), (1, 0), (2, 2)])
def test_an_even_head_is_that_of_the_librarys_own_code(measured, layer, head):
    model, batch, _, found = measured

    def even(text, row):
        words = batch.piece_word[text]
        result = row.clone()
        several = [words == word for word in range(1, int(batch.content[text].sum()) + 1)]
        on_text = sum(row[one].sum() for one in several)
        for one in several:
            result[one] = row[one] / row[one].sum() * on_text / len(several)
        return result

    before = by_hand(model, batch, layer, head, lambda _, row: row)
    after = by_hand(model, batch, layer, head, even)
    expected = (after - before).abs().sum(-1) / 2
    site = f"layer {layer}, head {head}"
    torch.testing.assert_close(found["uniform_tvd", site].value, expected, atol=1e-9, rtol=0)
    assert expected.max() > 1e-4
    rows = []
    by_hand(model, batch, layer, head, lambda _, row: rows.append(row) or row)
    special = [float(row[batch.piece_word[text] == -1].sum()) for text, row in enumerate(rows)]
    torch.testing.assert_close(
        found["special_mass", site].value, torch.tensor(special, dtype=torch.float64)
    )


def test_the_last_layer_is_what_the_models_own_probes_measure(measured):
    _, _, subject, found = measured
    own = {
        one.metric: one.value for one in Permutation(samples=4).examine(subject, Draws(0, "sites"))
    }
    torch.testing.assert_close(found["median_tvd", "layer 2"].value, own["median_tvd"])
    torch.testing.assert_close(found["max_attention", "layer 2"].value, own["max_attention"])
    assert found["attention", "layer 0, head 1"].step.shape == subject.batch.content.shape
    assert {metric for metric, _ in found} == OF_EVERY_SITE
    # text 2 has one word: there is nothing to leave out
    assert found["top_tvd", "layer 1"].value.isnan().tolist() == [False, False, True]


def table():
    lines = [
        {
            "metric": metric,
            "site": site,
            "example_id": number,
            "value": float(layer + head / 10 + number),
        }
        for metric in ("median_tvd", "tau_gradient")
        for layer in (0, 1)
        for head, site in enumerate(
            [f"layer {layer}", f"layer {layer}, head 0", f"layer {layer}, head 1"]
        )
        for number in (0, 2)
    ]
    identity = {
        "run_id": "r",
        "experiment": "sites",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
    }
    return pd.DataFrame(lines).assign(**identity, probe="sites", step=np.nan)


def test_the_mean_of_the_texts_stands_at_its_layer_and_head():
    ((_, found),) = means(table())
    assert found["layer"].tolist() == [0, 0, 0, 1, 1, 1]
    assert found["head"].tolist() == [-1, 0, 1, -1, 0, 1]
    np.testing.assert_allclose(found["median_tvd"], [1.0, 1.1, 1.2, 2.0, 2.1, 2.2])
    assert set(found["n"]) == {2}
    lines = sites_table(table())
    assert lines["head"].tolist() == ["all", "0", "1"] * 2
    np.testing.assert_allclose(lines["τ with gradient"], found["tau_gradient"])


def test_the_picture_has_a_map_of_each_measure_with_its_numbers():
    figure = maps(table(), None)
    first, second = figure.axes
    assert first.get_title("left").startswith("weights permuted: TVD")
    assert second.get_title("left").startswith("τ with gradient")
    shown = first.images[0].get_array()
    assert shown[1, 0] == 2.1  # layer 1, head 0
    assert shown[0, 3] == 1.0  # layer 0, all heads
    assert shown.mask[:, 2].all()  # a gap between the heads and all of them


@pytest.mark.parametrize("site", ["", "layer 1000000000, head 0", "layer x"])
def test_a_table_whose_sites_are_no_layers_is_refused(site):
    with pytest.raises(UserError, match="names no layer"):
        maps(table().assign(site=site), None)
