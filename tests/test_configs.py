"""Every experiment and model of conf/ runs offline on a toy corpus.

tests/runs/test_validation composes every file.
"""

import json
from pathlib import Path

import pytest
import yaml
from hydra.errors import HydraException
from hydra.utils import get_class
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.errors import UserError
from attnprobe.core.settings import arguments
from attnprobe.results.table import read_results
from attnprobe.runs.answers import answer
from attnprobe.runs.composition import resolved
from attnprobe.runs.run import run
from attnprobe.runs.validation import configured
from tests import remembered
from tests.small_runs import NARROW, SMALL, SMALL_ADVERSARY, composed

CONF = Path(__file__).parent.parent / "conf"


def stems(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml") if path.stem != "base")


def composed_or_answered(overrides):
    """The configuration of a command line, or the answer to its mistake."""
    try:
        return OmegaConf.to_yaml(composed(*overrides))
    except (HydraException, OmegaConfBaseException) as error:
        return answer(error, overrides)


@pytest.mark.parametrize(
    "overrides",
    [
        ["seed=3"],
        ["data=sst", "model.encoder.hidden_size=3"],
        ["+experiment=jain", "seed=5"],
        ["foo.bar=3"],
        ["data=sts"],
        ["seed=4", "probe=[permutation]", "probe.permutation.samples=9"],
        ["~model.encoder.hidden_size"],
    ],
    ids=" ".join,
)
def test_a_composition_that_is_remembered_is_the_one_that_hydra_makes(overrides, monkeypatch):
    first = composed_or_answered(overrides)
    second = composed_or_answered(overrides)
    monkeypatch.setattr(remembered, "enabled", False)
    assert first == second == composed_or_answered(overrides)


CHOSEN_BY_CONF = {("agreement", "share"), ("signs", "importances")}
"""Settings that conf/ deliberately chooses otherwise than their class."""


@pytest.mark.parametrize(
    ("group", "stem"),
    [(group, stem) for group in ("probe", "importance") for stem in stems(group)]
    + [("data", "base")],
)
def test_a_default_in_conf_is_the_one_of_the_class(group, stem):
    settings = yaml.safe_load((CONF / group / f"{stem}.yaml").read_text("utf-8"))
    parameters = arguments(get_class(settings.pop("_target_")))
    differing = {}
    for name, value in settings.items():
        is_value = name[0] != "_" and not str(value).startswith(("${", "???"))
        if is_value and (stem, name) not in CHOSEN_BY_CONF:
            default = parameters[name].default
            if not is_same_default(value, default):
                differing[name] = (value, default)
    assert differing == {}


def is_same_default(value, default):
    if value == {}:  # a dataclass makes a new one each time
        return repr(default) == "<factory>"
    return json.dumps(value) == json.dumps(default)


STUDY_NAMES = ("wiegreffe", "audit", "methods", "sanity", "questions")
STUDIES = [stem for stem in stems("experiment") if stem.startswith(STUDY_NAMES)]
"""Experiments of several runs, which tests/findings/studies carries out."""


@pytest.mark.parametrize("stem", STUDIES)
def test_every_study_is_built_from_its_defaults(stem):
    config = composed(f"+experiment={stem}")
    study = configured(resolved(config)).study
    assert config.experiment == study.name == stem.split("_")[0]
    message = r"is a study of several runs: start it with `python -m attnprobe \+experiment="
    with pytest.raises(UserError, match=message):
        run(config)


FEW_SAMPLES = (
    "importance.lime.samples=50",
    "importance.shapley_sampling.samples=5",
    "importance.integrated_gradients.steps=4",
)
FEW_STEPS = ("probe.adversarial.steps=5", "probe.adversarial.restarts=1")


# tests/models/pretrained has the experiment `sites`, tests/runs/launching the sweep `papers`
SINGLE_RUNS = set(stems("experiment")) - set(STUDIES) - {"sites", "papers"}


PARTS = ("jain_adversarial", "jain_correlation", "serrano_erasure", "serrano_single_weight")
"""Experiments whose probes another one has too, with their settings: `jain` and `serrano`."""


def slow_if(name, names):
    """A parameter of a test that is slow for some names."""
    return pytest.param(name, marks=[pytest.mark.slow] if name in names else [])


@pytest.mark.parametrize("stem", [slow_if(stem, PARTS) for stem in sorted(SINGLE_RUNS)])
def test_every_experiment_runs_on_a_toy_corpus(stem, tmp_path):
    settings = [
        f"+experiment={stem}",
        *SMALL,
        "data.source.test_size=8",
        "training.epochs=1",
        *FEW_SAMPLES,
        f"output={tmp_path}",
    ]
    config = composed(*settings)
    if "adversarial" in config.probe:
        settings += FEW_STEPS
    if "width" in config.model:
        settings.append(NARROW)
    config = composed(*settings)
    results = read_results(run(config))
    assert set(results["experiment"]) == {stem}
    assert set(results["probe"]) >= set(config.probe)


# tests/models has the attentions that are given
PROBED = sorted(set(stems("model/attention")) - {"imposed", "column"})
BY_DEFAULT = ("additive", "entmax", "label", "rationale")
"""Attentions that are learned, with zeros and without, one per label, and one of those that are
set, which differ by their weights."""


@pytest.mark.parametrize(
    "attention", [slow_if(name, set(PROBED) - set(BY_DEFAULT)) for name in PROBED]
)
def test_all_of_jain_and_wallace_runs_on_questions_and_every_attention_is_probed_there(
    attention, tmp_path
):
    settings = [*SMALL, NARROW, "data.source.test_size=8", f"output={tmp_path}"]
    settings += ["data.source.train_size=60", "training.epochs=1", *FEW_STEPS]
    settings += [f"model/attention={attention}", "task=qa", "+experiment=jain"]
    if attention != "additive":
        settings += ["probe=[permutation,adversarial,gradient]"]
    config = composed(*settings)
    results = read_results(run(config))
    assert set(results["data"]) == {"stories"}
    assert set(results["model"]) == {f"lstm_{attention}"}
    assert set(results["probe"]) >= set(config.probe)
    assert (results.loc[results["metric"] == "is_exact", "value"] == 0).all()


OF_LABELS = ("caml", "laat")
ALIKE = ("flannoenc", "flanrnn", "hanconv", "hannoenc")
"""Hierarchies of the encoders of `hanrnn` (by sentences) and `flanconv` (by words)."""
MODELS = sorted(set(stems("model")) - {"own", "pretrained", "plm_icd"})


# tests/models/pretrained/test_run has the pretrained ones, tests/docs/test_lightning one's own
@pytest.mark.parametrize("model", [slow_if(model, ALIKE) for model in MODELS])
def test_every_model_trains(model, tmp_path):
    overrides = [f"model={model}", *SMALL, "probe=[permutation]", "training.epochs=1"]
    overrides.append("data.source.train_size=60")
    if "width" in composed(*overrides).model:
        overrides.append(NARROW)
    if model in OF_LABELS:
        overrides += ["task=labels", "model.attention.inner_size=16", "data.source.length=30"]
    results = read_results(run(composed(*overrides, f"output={tmp_path}")))
    assert {name.split("_")[0] for name in results["model"]} == {model}


def test_a_pooled_row_is_examined_by_every_probe_but_the_exact_ones(tmp_path):
    probes = "permutation,adversarial,gradient,leave_one_out,correlation,plausibility"
    overrides = [*SMALL, *SMALL_ADVERSARY, f"probe=[{probes},single_weight,erasure]"]
    overrides += [NARROW, "data.source.test_size=8"]
    pooled = ["model=transformer", "model/pooling=cls", f"output={tmp_path}"]
    results = read_results(run(composed(*pooled, *overrides)))
    assert set(results["model"]) == {"transformer_cls"}
    assert (results.loc[results["metric"] == "is_exact", "value"] == 0).all()
    assert "removed_fraction_attention" in set(results["metric"])
    assert "removed_fraction_optimal" not in set(results["metric"])
