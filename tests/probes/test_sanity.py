import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.findings.studies.base import read_study
from attnprobe.measures import spearman
from attnprobe.probes.base import Measurement
from attnprobe.probes.sanity import Sanity, lines_down, sanity_table, shuffled
from attnprobe.results.table import read_results
from attnprobe.runs.studies import carry_out_study
from tests.probes.tables import subject_of, table
from tests.small_runs import SMALL, composed
from tests.toys import toy_batch, toy_classifier

NAMES = ("attention", "position", "gradient", "random")


def similarities(classifier, batch, probe, seed=0):
    """Metric → its values."""
    results = probe.measure(subject_of(classifier, batch), Draws(seed, "sanity"))
    return {result.metric: result.value for result in results if isinstance(result, Measurement)}


PARTS = ["decoder", "attention", "encoder", "embedding"]


@pytest.fixture(scope="module")
def examined():
    """A model's state before and after, and what was measured."""
    classifier = toy_classifier(spread=4)
    before = {name: tensor.clone() for name, tensor in classifier.state_dict().items()}
    probe = Sanity(importances=NAMES, samples=2)
    numbers = similarities(classifier, toy_batch([9, 12, 7] * 8), probe)
    return before, classifier, numbers


def test_the_model_is_left_as_it_was(examined):
    before, classifier, _ = examined
    assert list(classifier.stages()) == PARTS
    for name, tensor in classifier.state_dict().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["position", "random"])
def test_what_reads_no_parameter_stays(examined, part, name):
    _, _, numbers = examined
    similarity = numbers[f"similarity_{name}_down_to_{part}"]
    assert_close(similarity, torch.ones(24, dtype=torch.float64))


def test_attention_is_computed_before_the_decoder(examined):
    _, _, numbers = examined
    assert (numbers["similarity_attention_down_to_decoder"] == 1).all()


@pytest.mark.parametrize("name", ["attention", "gradient"])
def test_what_reads_the_parameters_changes(examined, name):
    _, _, numbers = examined
    similarity = numbers[f"random_weights_similarity_{name}"]
    assert similarity.mean().abs() < 0.3
    assert torch.equal(similarity, numbers[f"similarity_{name}_down_to_embedding"])


def test_the_ceiling_is_1_without_random_numbers_and_the_floor_is_0(examined):
    _, _, numbers = examined
    assert (numbers["ceiling_similarity_attention"] == 1).all()
    assert numbers["ceiling_similarity_random"].mean() < 0.5
    assert numbers["floor_similarity_position"].mean().abs() < 0.3


def test_one_random_model_by_hand():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([6, 8])
    attention = classifier(batch).attention.detach().double()
    numbers = similarities(classifier, batch, Sanity(importances=("attention",), samples=1))
    generator = torch.Generator().manual_seed(0)
    decoder, attention_part = list(classifier.stages().values())[:2]
    mixed = {name: shuffled(classifier, name, generator) for name in [*decoder, *attention_part]}
    for name, values in mixed.items():
        parameter = classifier.get_parameter(name)
        before = parameter.detach().flatten()
        assert torch.equal(values.flatten().sort().values, before.sort().values)
        parameter.data.copy_(values)
    changed = classifier(batch).attention.detach().double()
    similarity = spearman(attention, changed, batch.content)
    assert_close(numbers["similarity_attention_down_to_attention"], similarity)


def test_a_probe_that_was_timed_under_another_seed_measures_what_a_new_one_does():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([6, 8])
    timed = Sanity(importances=("attention",), samples=1)
    before = similarities(classifier, batch, timed, seed=0)
    after = similarities(classifier, batch, timed, seed=1)
    new = similarities(classifier, batch, Sanity(("attention",), samples=1), seed=1)
    name = "similarity_attention_down_to_attention"
    assert not torch.equal(before[name], after[name])
    assert torch.equal(after[name], new[name])


def test_paddings_vector_stays_zero():
    classifier = toy_classifier()
    moved = shuffled(classifier, "embedding.weight", torch.Generator().manual_seed(0))
    assert (moved[0] == 0).all()
    assert not torch.equal(moved, classifier.embedding.weight)


def test_scores_that_are_all_equal_have_no_line():
    metrics = {}
    for name, similarity in {"idf": 1.0, "uniform": np.nan}.items():
        metrics[f"ceiling_similarity_{name}"] = np.full(4, similarity)
        metrics[f"random_weights_similarity_{name}"] = np.full(4, similarity)
        metrics[f"similarity_{name}_down_to_decoder"] = np.full(4, similarity)
    (panel,) = lines_down(table("sanity", metrics), None).axes
    drawn = [line.get_ydata() for line in panel.lines if line.get_marker() != "None"]
    assert len(drawn) == 2
    is_undefined = [np.isnan(values).all() for values in drawn]
    assert sorted(is_undefined) == [False, True]


def test_the_study_from_training_to_its_table(tmp_path):
    names = "importances=[attention,random,idf]"
    command = ["+experiment=sanity", *SMALL, names, "probe.sanity.samples=1", f"output={tmp_path}"]
    reading = read_study(carry_out_study(command, lambda changes: composed(*changes)))
    lines = sanity_table(read_results(reading.runs[0])).set_index("importance")
    assert lines.loc[["rarity (idf)", "random"], "depends on the model"].tolist() == ["no", "no"]
    assert lines.loc["rarity (idf)", "labels by a coin"] == pytest.approx(1)
    assert lines.loc["attention", "labels by a coin"] < 1
    assert len(lines) == 3
    (panel,) = lines_down(read_results(reading.runs[0]), None).axes
    drawn = [line.get_ydata() for line in panel.lines if len(line.get_ydata()) > 2]
    assert [values[0] for values in drawn] == [1, 1, 1]
    # neither luck nor counted words change with the weights
    stays = [bool(np.allclose(values, 1)) for values in drawn]
    assert sorted(stays) == [False, True, True]
    probe = Sanity(twin=str(reading.runs[0]))
    with pytest.raises(UserError, match=r"probe.sanity.twin=.*its weights have other sizes"):
        probe.refuse(toy_classifier())
