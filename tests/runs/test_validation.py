"""Every setting has a type, and a mistake in one is one line that says so."""

from collections import defaultdict
from itertools import zip_longest
from pathlib import Path

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import TestbedSource
from attnprobe.importance.gradients import IntegratedGradients
from attnprobe.models.encoders import LSTMEncoder
from attnprobe.models.recipe import Recipe
from attnprobe.probes.permutation import Permutation
from attnprobe.runs import trackers
from attnprobe.runs.composition import resolved
from attnprobe.runs.validation import configured
from tests.small_runs import composed

CONF = Path(__file__).parent.parent.parent / "conf"


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["seed=abc"], "seed=abc: expected a whole number of at least 0"),
        (
            ["model.encoder.hidden_size=abc"],
            "model.encoder.hidden_size=abc: expected a whole number of at least 1",
        ),
        (
            ["++data.max_sentences=none"],
            "data.max_sentences=none: expected a whole number of at least 1 or null",
        ),
        (
            ["probe.adversarial.learning_rate=[null]"],
            r"probe.adversarial.learning_rate=\[null\]: expected a number above 0",
        ),
        (
            ["importance.leave_one_out.tolerance=null"],
            "tolerance=null: expected a number of at least 0",
        ),
        (
            ["training.recipe.optimizer.lr=nan"],
            "training.recipe.optimizer.lr=NaN: expected a number of at least 0",
        ),
        (["data.clean=[htm]"], r'data.clean=\["htm"\]: expected .* did you mean html\?'),
        (
            ["data.tokenizer=spacey"],
            r"data.tokenizer=spacey: expected spacy or whitespace; did you mean spacy\?",
        ),
        (["+data.most={tran: 5}"], "data.most="),
        (
            ["data.text=3"],
            "data.text=3: expected text; as text it is written in two pairs of quotes: "
            """'data.text="3"'""",
        ),
        (
            ["data.class_weight=[1,-1]"],
            "expected none, balanced_positive, inverse_frequency or a list of numbers above 0",
        ),
        (["+model.encoder.hiden_size=3"], r"there is no such setting; did you mean hidden_size\?"),
        (
            ["model.encoder._target_=attnprobe.models.encoders.LSTMEncodr"],
            r"no such class; did you mean LSTMEncoder\?",
        ),
        (
            ["model.encoder._target_=nopackage.Class"],
            "model.encoder._target_=nopackage.Class: there is no such class",
        ),
        (
            ["model.encoder._target_=attnprobe.models.attention.DotAttention"],
            "expected a concrete subclass of .*TextEncoder",
        ),
        (
            ["model.encoder._target_=attnprobe.models.encoders.Encoder"],
            "expected a concrete subclass of .*TextEncoder",
        ),
        (["model.encoder._partial_=false"], "model.encoder._partial_=false: expected true"),
        (["model.encoder=lstm"], r"model.encoder=lstm: expected a part \(a mapping with _target_"),
        (
            ["~model.attention._target_"],
            r"model.attention=.*: expected a part \(a mapping with _target_",
        ),
        (["~training.epochs"], "training.epochs is missing: expected a whole number"),
        (["trainer.precision=33"], "trainer.precision=33: expected 32-true"),
        (["+trainer.max_epochs=3"], "trainer.max_epochs=3: the run sets this itself"),
        (
            ["logger.name=telegraph"],
            "logger.name=telegraph: expected none, csv, tensorboard, mlflow, wandb",
        ),
        (
            ["launcher.name={a: 1}"],
            "launcher.name=.*: expected inline, forecast, local, ray, submitit",
        ),
        (
            ["data._target_=os.system"],
            "data._target_=os.system: there is no such class, such as .*TextDataModule",
        ),
        (
            ["launcher.workers=0"],
            "launcher.workers=0: expected a whole number of at least 1 or null",
        ),
        (
            ["launcher=submitit", "launcher.parameters.mem_gb=much"],
            "launcher.parameters.mem_gb=much: expected a number",
        ),
        (
            ["on_finished=skp"],
            r"expected error, skip, remeasure, replace or null; did you mean skip\?",
        ),
        (["+experiment=audit", "study.minutes=0"], "study.minutes=0: expected a number above 0"),
        (["+experiment=wiegreffe", "study.tests=[sed]"], r"did you mean seeds\?"),
        (["data.name=../../x"], "data.name=../../x: expected a name for folders"),
    ],
)
def test_a_wrong_setting_is_one_line(overrides, line):
    with pytest.raises(UserError, match=line) as raised:
        configured(resolved(composed(*overrides)))
    assert "\n" not in str(raised.value)


PRETRAINED = ["model=pretrained", "model.path=there"]
BESIDE = {
    "model=pretrained": ["model.path=there", "training=finetune"],
    "model=plm_icd": ["model.path=there", "training=finetune"],
    "training=none": PRETRAINED,
    "probe": ["teacher_id=there"],
    "importance": [],
    "model/pooling": ["model=transformer"],
    "model/reads": [*PRETRAINED, "training=finetune"],
}
"""What a choice, or one of a group, needs beside it."""


def command_line_of(group, stem):
    """A command line that chooses this file of conf/."""
    if group == "training_on":  # a recipe changes on a data set
        recipe, _, data = stem.partition("_")
        return [f"training={recipe}", f"data={data}"]
    choice = f"+experiment={stem}" if group == "experiment" else f"{group}={stem}"
    return [*BESIDE.get(choice, BESIDE.get(group, [])), choice]


APART = {
    ("launcher", "ray"),  # needs a plug-in
    ("model", "own"),  # needs the path of a checkpoint: tests/docs/test_lightning.py
    ("experiment", "papers"),  # a sweep: tests/runs/launching/test_grids.py
}
CHOSEN_TOGETHER = ("probe", "importance")
"""Groups of which one command line chooses all files."""
SIDE_BY_SIDE = ("data", "model/attention", "model/decoder", "logger", "launcher", "task")
"""Groups whose first files one command line chooses, the second ones another, and so on."""


def stems_by_group():
    """Group of conf/ → its files that a command line can choose."""
    stems = defaultdict(list)
    for path in sorted(CONF.glob("*/**/*.yaml")):
        group = path.parent.relative_to(CONF).as_posix()
        choice = (group, path.stem)
        if path.stem != "base" and not group.startswith("hydra") and choice not in APART:
            stems[group].append(path.stem)
    return stems


def command_lines():
    """Command lines that choose every file of conf/ once: composing one takes 0.1 s."""
    stems = stems_by_group()
    for group in CHOSEN_TOGETHER:
        every = ",".join(stems.pop(group))
        yield [*BESIDE[group], f"{group}=[{every}]"]
    columns = [[f"{group}={stem}" for stem in stems.pop(group)] for group in SIDE_BY_SIDE]
    for choices in zip_longest(*columns):
        yield [choice for choice in choices if choice is not None]
    for group in stems:
        for stem in stems[group]:
            yield command_line_of(group, stem)


@pytest.mark.parametrize("overrides", list(command_lines()), ids=" ".join)
def test_every_choice_of_conf_passes(overrides, monkeypatch):
    # what each logger needs may be installed or not
    monkeypatch.setattr(trackers, "find_spec", lambda name: name)
    configured(resolved(composed(*overrides)))


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (
            ["training=none"],
            "training.epochs=0: expected .* of at least 1; only a model that is trained already",
        ),
        (
            ["data.test_share=1.0"],
            "data.test_share=1 leaves no row for training.epochs=8: expected a number below 1",
        ),
        (PRETRAINED, "take it as it is with training=none, or fine-tune it with training=finetune"),
        (
            [*PRETRAINED, "training=none", "model.rows=some"],
            "model.rows=some: expected pooled or all",
        ),
        (
            [*PRETRAINED, "training=none", "+model.hedas=[1]"],
            r"there is no such setting; did you mean heads\?",
        ),
    ],
)
def test_models_that_are_trained_already(overrides, line):
    with pytest.raises(UserError, match=line):
        configured(resolved(composed(*overrides)))


@pytest.mark.parametrize(
    ("place", "value", "construct"),
    [
        ("probe.permutation.samples", 0, lambda: Permutation(samples=0)),
        ("probe.permutation.sampels", 9, lambda: Permutation(sampels=9)),
        ("importance.integrated_gradients.gap", 0, lambda: IntegratedGradients(gap=0)),
        ("model.encoder.hidden_size", 0, lambda: LSTMEncoder(8, hidden_size=0)),
        ("training.recipe.reduction", "max", lambda: Recipe(torch.optim.Adam, reduction="max")),
        (
            "data.tokenizer",
            "spacey",
            lambda: TextDataModule("x", TestbedSource(), tokenizer="spacey"),
        ),
        ("data.source.hops", 9, lambda: TestbedSource("stories", hops=9)),
    ],
)
def test_python_and_the_command_line_answer_with_the_same_line(place, value, construct):
    with pytest.raises(UserError) as python:
        construct()
    content = resolved(composed())
    *groups, name = place.split(".")
    part = content
    for group in groups:
        part = part[group]
    part[name] = value
    with pytest.raises(UserError) as on_the_command_line:
        configured(content)
    assert str(python.value) == str(on_the_command_line.value)
    assert str(python.value).startswith(f"{place}={value}: ")


def test_a_class_of_another_package_needs_no_schema(tmp_path, monkeypatch):
    (tmp_path / "their_encoders.py").write_text(
        "from attnprobe.models.encoders import LSTMEncoder\n\n"
        "class Theirs(LSTMEncoder):\n    def __init__(self, input_size: int, heads: int = 2): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    theirs = ["model.encoder._target_=their_encoders.Theirs", "~model.encoder.hidden_size"]
    configured(resolved(composed(*theirs, "+model.encoder.heads=3")))
    with pytest.raises(UserError, match=r"model.encoder.heads=three: expected a whole number"):
        configured(resolved(composed(*theirs, "+model.encoder.heads=three")))


BARE = """
from attnprobe.models import attention, decoders, encoders
class E(encoders.Encoder): ...
class A(attention.Attention): ...
class G(attention.GivenAttention): ...
class D(decoders.Decoder): ...
"""


@pytest.mark.parametrize(
    ("stage", "kind"), [("encoder", "E"), ("attention", "A"), ("attention", "G"), ("decoder", "D")]
)
def test_a_stage_that_computes_nothing_is_refused_before_any_work(
    tmp_path, monkeypatch, stage, kind
):
    (tmp_path / "bare_stages.py").write_text(BARE)
    monkeypatch.syspath_prepend(tmp_path)
    theirs = [f"model.{stage}._target_=bare_stages.{kind}", "~model.encoder.hidden_size"]
    with pytest.raises(UserError, match=rf"bare_stages\.{kind}: expected a concrete subclass"):
        configured(resolved(composed(*theirs)))


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("data.path=folder/my reviews.csv.gz", "my_reviews"),
        ("data.path={train: tweets/train.csv}", "tweets"),
        ("data.name=given", "given"),
        ("data.path=null", "files"),
    ],
)
def test_data_from_files_are_called_as_their_file(override, name):
    assert resolved(composed("data=files", override))["data"]["name"] == name


def test_a_strategy_that_lightning_does_not_know_is_refused_before_any_work():
    configured(resolved(composed("trainer.strategy=ddp")))
    with pytest.raises(UserError, match=r"trainer\.strategy=/dev/null: expected auto, ddp"):
        configured(resolved(composed("trainer.strategy=/dev/null")))


def test_tracking_without_its_extra_is_refused_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"logger=mlflow needs pip install 'attnprobe\[mlflow\]'"):
        configured(resolved(composed("logger=mlflow")))
