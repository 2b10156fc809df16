from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.findings.studies.base import read_study
from attnprobe.measures import spearman
from attnprobe.probes.base import Measurement
from attnprobe.probes.sanity import CLAIMS, READING, Sanity, lines_down, sanity_table, shuffled
from attnprobe.results.pivot import ASKED
from attnprobe.results.table import read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.studies import carry_out_study
from tests.probes.tables import subject_of, table
from tests.small_runs import SMALL, composed
from tests.toys import toy_batch, toy_classifier

NAMES = ("attention", "position", "gradient", "random")


PARTS = ["decoder", "attention", "encoder", "embedding"]


def measured(classifier, batch, probe, seed=0):
    """Metric → its values."""
    subject = subject_of(classifier, batch)
    results = probe.measure(subject, Draws(seed, "sanity"))
    return {result.metric: result.value for result in results if isinstance(result, Measurement)}


@pytest.fixture(scope="module")
def examined():
    """A model's state before and after, and what was measured."""
    classifier = toy_classifier(spread=4)
    before = deepcopy(classifier.state_dict())
    probe = Sanity(importances=NAMES, samples=2)
    numbers = measured(classifier, toy_batch([9, 12, 7] * 8), probe)
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


def attention_of(classifier, batch):
    with torch.no_grad():
        return classifier(batch).attention.double()


def test_one_random_model_by_hand():
    """The decoder's parameters are shuffled first, then those of the attention."""
    classifier = toy_classifier(spread=4)
    batch = toy_batch([6, 8])
    before = attention_of(classifier, batch)
    numbers = measured(classifier, batch, Sanity(importances=("attention",), samples=1))

    stages = classifier.stages()
    generator = torch.Generator().manual_seed(0)
    for name in [*stages["decoder"], *stages["attention"]]:
        parameter = classifier.get_parameter(name)
        parameter.data = shuffled(classifier, name, generator)

    after = attention_of(classifier, batch)
    similarity = spearman(before, after, batch.content)
    assert_close(numbers["similarity_attention_down_to_attention"], similarity)


def test_a_shuffled_parameter_has_its_numbers_in_another_order():
    classifier = toy_classifier(spread=4)
    for name in classifier.stages()["decoder"]:
        values = shuffled(classifier, name, torch.Generator().manual_seed(0)).flatten()
        before = classifier.get_parameter(name).detach().flatten()
        assert torch.equal(values.sort().values, before.sort().values)


def test_a_probe_that_was_timed_under_another_seed_measures_what_a_new_one_does():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([6, 8])
    timed = Sanity(importances=("attention",), samples=1)
    fresh = Sanity(importances=("attention",), samples=1)

    before = measured(classifier, batch, timed, seed=0)
    after = measured(classifier, batch, timed, seed=1)
    expected = measured(classifier, batch, fresh, seed=1)

    name = "similarity_attention_down_to_attention"
    assert not torch.equal(before[name], after[name])
    assert torch.equal(after[name], expected[name])


@pytest.mark.parametrize("question", [False, True])
def test_columns_stand_in_the_order_in_which_parts_become_random(question):
    """What is still the trained model's at a column is all that stands to the right of it."""
    classifier = toy_classifier(question=question, spread=4)
    batch = toy_batch([6, 8], question=question)
    seen = []
    before = {name: value.clone() for name, value in classifier.named_parameters()}

    def note(module, inputs):
        parts = {
            name.partition(".")[0]
            for name, value in classifier.named_parameters()
            if not torch.equal(value, before[name])
        }
        if parts and parts not in seen:
            seen.append(parts)

    classifier.attention.register_forward_pre_hook(note)
    numbers = measured(classifier, batch, Sanity(importances=("attention",), samples=1))
    frame = table("sanity", {name: value.numpy() for name, value in numbers.items()})
    columns = [name.removeprefix("down to ") for name in sanity_table(frame) if "down to" in name]

    parts_by_column = [name.replace(" ", "_") for name in columns]
    assert len(columns) == len(seen) == (6 if question else 4)
    for place, random_parts in enumerate(seen, start=1):
        assert random_parts == set(parts_by_column[:place])


def test_paddings_vector_stays_zero():
    classifier = toy_classifier()
    moved = shuffled(classifier, "embedding.weight", torch.Generator().manual_seed(0))
    assert (moved[0] == 0).all()
    assert not torch.equal(moved, classifier.embedding.weight)


def test_every_column_is_a_mean_of_texts_however_many_labels_each_is_asked_for():
    """Rows 0 to 2 are one text's: its mean 0.2 and the others' 0.6 and 0.7 have the mean 0.5."""
    similarity = [0.1, 0.2, 0.3, 0.6, 0.7]
    names = ("random_weights_similarity_idf", "similarity_idf_down_to_embedding")
    metrics = dict.fromkeys(names, similarity) | {"ceiling_similarity_idf": np.ones(5)}
    results = table("sanity", metrics)
    results.attrs[ASKED] = {"hanconv": {"1": 0, "2": 0}}
    [line] = sanity_table(results).to_dict("records")
    assert line["n"] == 3
    assert line["random weights"] == pytest.approx(0.5)
    assert line["down to embedding"] == pytest.approx(0.5)


def test_a_reversed_ranking_is_in_the_figure():
    """One random model can turn an attention's order around in most texts."""
    metrics = {
        "ceiling_similarity_idf": np.ones(4),
        "random_weights_similarity_idf": np.full(4, -0.8),
        "similarity_idf_down_to_decoder": np.full(4, -0.8),
    }
    (panel,) = lines_down(table("sanity", metrics), None).axes
    low, high = panel.get_ylim()
    assert low < -0.8 < 1 < high


def test_what_the_intervals_are_over_is_said():
    """Other random models differ by more than other texts do."""
    [tabulation] = READING.tables
    [claim] = CLAIMS
    for words in (tabulation.caption, claim.quantity):
        assert "over texts" in words
        assert "random models that were drawn" in words


def test_scores_that_are_all_equal_have_no_line():
    metrics = {}
    for name, similarity in {"idf": 1.0, "uniform": np.nan}.items():
        values = np.full(4, similarity)
        metrics[f"ceiling_similarity_{name}"] = values
        metrics[f"random_weights_similarity_{name}"] = values
        metrics[f"similarity_{name}_down_to_decoder"] = values
    (panel,) = lines_down(table("sanity", metrics), None).axes
    drawn = [line.get_ydata() for line in panel.lines if line.get_marker() != "None"]
    is_undefined = [np.isnan(values).all() for values in drawn]
    assert sorted(is_undefined) == [False, True]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of the first run of the study, trained on few texts."""
    folder = tmp_path_factory.mktemp("study")
    command = [
        "+experiment=sanity",
        *SMALL,
        "importances=[attention,random,idf]",
        "probe.sanity.samples=1",
        f"output={folder}",
    ]
    output = carry_out_study(command, lambda changes: composed(*changes))
    return read_study(output).runs[0]


def test_the_table_of_the_study(study):
    lines = sanity_table(read_results(study)).set_index("importance")
    depends = lines["depends on the model"]
    similarity = lines["labels by a coin"]
    assert len(lines) == 3
    assert depends["rarity (idf)"] == "no"
    assert depends["random"] == "no"
    assert similarity["rarity (idf)"] == pytest.approx(1)
    assert similarity["attention"] < 1


def test_the_figure_of_the_study(study):
    """Neither luck nor counted words change with the weights."""
    (panel,) = lines_down(read_results(study), None).axes
    values = [line.get_ydata() for line in panel.lines]
    drawn = [line for line in values if len(line) > 2]
    assert [line[0] for line in drawn] == [1, 1, 1]
    stays = [np.allclose(line, 1) for line in drawn]
    assert sorted(stays) == [False, True, True]


def test_a_twin_with_weights_of_other_sizes_is_refused(study):
    probe = Sanity(twin=str(study))
    with pytest.raises(UserError, match=r"probe.sanity.twin=.*its weights have other sizes"):
        probe.refuse(toy_classifier())


def test_a_twin_that_was_trained_on_its_own_labels_is_refused(study):
    """The run that was examined is no twin of itself: it would be as similar as can be."""
    classifier = load_run(study).classifier
    with pytest.raises(UserError, match=r"labels by a coin.*training=coin_flips"):
        Sanity(twin=str(study)).refuse(classifier)
    [twin] = [run for run in study.parent.iterdir() if is_twin(run)]
    Sanity(twin=str(twin)).refuse(classifier)


def is_twin(directory):
    """Whether a run of the study was trained by another objective than the examined one."""
    manifest = directory / "manifest.json"
    return manifest.exists() and "CoinFlips" in manifest.read_text()
