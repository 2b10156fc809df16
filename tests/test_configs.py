"""Every experiment and model of conf/ runs offline on a toy corpus; running/test_validation
composes every file."""

from pathlib import Path

import pytest
from hydra.errors import HydraException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.errors import UserError
from attnprobe.results.table import read_results
from attnprobe.runs.answers import answer
from attnprobe.runs.run import run
from tests import remembered
from tests.small_runs import SMALL, SMALL_ADVERSARY, composed

CONF = Path(__file__).parent.parent / "conf"


def stems(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml") if path.stem != "base")


def test_a_composition_that_is_remembered_is_the_one_that_hydra_makes(monkeypatch):
    lines = (
        ["seed=3"],
        ["data=sst", "model.encoder.hidden_size=3"],
        ["+experiment=jain", "seed=5"],
        ["foo.bar=3"],
        ["data=sts"],
        ["seed=4", "probe=[permutation]", "probe.permutation.samples=9"],
        ["~model.encoder.hidden_size"],
    )

    def answered(line):
        try:
            return OmegaConf.to_yaml(composed(*line))
        except (HydraException, OmegaConfBaseException) as error:
            return answer(error, line)

    twice = [[answered(line) for line in lines] for _ in range(2)]
    monkeypatch.setattr(remembered, "enabled", False)
    assert twice == [[answered(line) for line in lines]] * 2


STUDIES = [
    stem
    for stem in stems("experiment")
    if stem.startswith(("wiegreffe", "audit", "calibration", "methods", "sanity", "questions"))
]
"""Experiments of several runs, which tests/studies carries out."""


@pytest.mark.parametrize("stem", STUDIES)
def test_every_study_is_built_from_its_defaults(stem):
    config = composed(f"+experiment={stem}")
    assert config.experiment == instantiate(config.study).name == stem.split("_")[0]
    with pytest.raises(
        UserError,
        match=r"is a study of several runs: start it with `python -m attnprobe \+experiment=",
    ):
        run(config)


FEW_SAMPLES = (
    "importance.lime.samples=50",
    "importance.shapley_sampling.samples=5",
    "importance.integrated_gradients.steps=4",
)


@pytest.mark.parametrize(
    "stem", sorted(set(stems("experiment")) - set(STUDIES) - {"sites"})
)  # models/pretrained
def test_every_experiment_runs_on_a_toy_corpus(stem, tmp_path):
    settings = [
        f"+experiment={stem}",
        *SMALL,
        "data.source.test_size=8",
        *FEW_SAMPLES,
        f"output={tmp_path}",
    ]
    config = composed(*settings)
    if "adversarial" in config.probe:
        config = composed(*settings, *SMALL_ADVERSARY)
    results = read_results(run(config))
    assert set(results["experiment"]) == {stem}
    assert set(results["probe"]) >= set(config.probe)


@pytest.mark.parametrize(
    "attention", sorted(set(stems("model/attention")) - {"imposed", "column"})
)  # tests/models
def test_all_of_jain_and_wallace_runs_on_questions_and_every_attention_is_probed_there(
    attention, tmp_path
):
    probes = (
        []
        if attention == "additive"
        else ["probe=[permutation,adversarial,gradient]", "training.epochs=1"]
    )
    settings = (
        f"model/attention={attention}",
        *SMALL,
        *SMALL_ADVERSARY,
        *probes,
        f"output={tmp_path}",
    )
    config = composed("data.source.test_size=12", "+experiment=jain", "task=qa", *settings)
    results = read_results(run(config))
    assert (set(results["data"]), set(results["model"])) == ({"stories"}, {f"lstm_{attention}"})
    assert set(results["probe"]) >= set(config.probe)
    assert (results.loc[results["metric"] == "is_exact", "value"] == 0).all()


@pytest.mark.parametrize(
    "model", sorted(set(stems("model")) - {"pretrained"})
)  # tests/models/pretrained/test_run
def test_every_model_trains(model, tmp_path):
    overrides = [f"model={model}", *SMALL, "probe=[permutation]", "training.epochs=1"]
    results = read_results(run(composed(*overrides, f"output={tmp_path}")))
    assert {name.split("_")[0] for name in results["model"]} == {model}


def test_a_pooled_row_is_examined_by_every_probe_but_the_exact_ones(tmp_path):
    probes = "[permutation,adversarial,gradient,leave_one_out,correlation,plausibility,single_weight,erasure]"
    overrides = [
        "model=transformer",
        "model/pooling=cls",
        *SMALL,
        *SMALL_ADVERSARY,
        f"probe={probes}",
    ]
    results = read_results(run(composed(*overrides, f"output={tmp_path}")))
    assert set(results["model"]) == {"transformer_cls"}
    assert (results.loc[results["metric"] == "is_exact", "value"] == 0).all()
    assert "removed_fraction_attention" in set(results["metric"])
    assert "removed_fraction_optimal" not in set(results["metric"])
