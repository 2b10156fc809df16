import numpy as np
import pytest
import torch

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


def of(classifier, batch, probe, seed=0):
    found = probe.measure(subject_of(classifier, batch), Draws(seed, "sanity"))
    return {one.metric: one.value for one in found if isinstance(one, Measurement)}


def test_what_ignores_the_parameters_stays_and_the_model_is_left_as_it_was():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([9, 12, 7] * 8)
    before = {name: one.clone() for name, one in classifier.state_dict().items()}
    found = of(classifier, batch, Sanity(importances=NAMES, samples=2))
    assert all(torch.equal(one, before[name]) for name, one in classifier.state_dict().items())
    parts = list(classifier.stages())
    assert parts == ["decoder", "attention", "encoder", "embedding"]
    for part in parts:
        for known in ("position", "random"):  # they read no parameter
            torch.testing.assert_close(
                found[f"similarity_{known}_down_to_{part}"], torch.ones(24, dtype=torch.float64)
            )
    assert (
        found["similarity_attention_down_to_decoder"] == 1
    ).all()  # it is computed before the decoder
    for changed in ("attention", "gradient"):
        left = found[f"random_weights_similarity_{changed}"]
        assert left.mean().abs() < 0.3
        assert torch.equal(left, found[f"similarity_{changed}_down_to_embedding"])
    assert (found["ceiling_similarity_attention"] == 1).all()
    assert found["ceiling_similarity_random"].mean() < 0.5
    assert found["floor_similarity_position"].mean().abs() < 0.3


def test_one_random_model_by_hand():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([6, 8])
    own = classifier(batch).attention.detach().double()
    found = of(classifier, batch, Sanity(importances=("attention",), samples=1))
    generator = torch.Generator().manual_seed(0)
    mixed = [
        (name, shuffled(classifier, name, generator))
        for names in list(classifier.stages().values())[:2]
        for name in names
    ]
    for name, values in mixed:
        before = classifier.get_parameter(name).detach()
        assert torch.equal(values.flatten().sort().values, before.flatten().sort().values)
        classifier.get_parameter(name).data.copy_(values)
    left = spearman(own, classifier(batch).attention.detach().double(), batch.content)
    torch.testing.assert_close(found["similarity_attention_down_to_attention"], left)


def test_a_probe_that_was_timed_under_another_seed_measures_what_a_new_one_does():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([6, 8])
    timed = Sanity(importances=("attention",), samples=1)
    before = of(classifier, batch, timed, seed=0)
    after = of(classifier, batch, timed, seed=1)
    new = of(classifier, batch, Sanity(("attention",), samples=1), seed=1)
    name = "similarity_attention_down_to_attention"
    assert not torch.equal(before[name], after[name])
    assert torch.equal(after[name], new[name])


def test_paddings_vector_stays_zero():
    classifier = toy_classifier()
    moved = shuffled(classifier, "embedding.weight", torch.Generator().manual_seed(0))
    assert (moved[0] == 0).all()
    assert not torch.equal(moved, classifier.embedding.weight)


def test_scores_that_are_all_equal_have_no_line():
    metrics = {
        metric.format(name): np.full(4, left)
        for name, left in (("idf", 1.0), ("uniform", np.nan))
        for metric in (
            "ceiling_similarity_{}",
            "random_weights_similarity_{}",
            "similarity_{}_down_to_decoder",
        )
    }
    (panel,) = lines_down(table("sanity", metrics), None).axes
    drawn = [line.get_ydata() for line in panel.lines if line.get_marker() != "None"]
    assert len(drawn) == 2
    assert sorted(np.isnan(values).all() for values in drawn) == [False, True]


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
    assert sorted(bool(np.allclose(values, 1)) for values in drawn) == [False, True, True]
    probe = Sanity(twin=str(reading.runs[0]))
    other = toy_classifier()
    with pytest.raises(UserError, match=r"probe.sanity.twin=.*its weights have other sizes"):
        probe.refuse(other)
