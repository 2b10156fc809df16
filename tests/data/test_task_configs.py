"""`task=qa` as one switch, with every data set, model, experiment and recipe."""

from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.models.decoders import LinearDecoder, QuestionDecoder
from attnprobe.runs.run import run
from tests import runs

CONF = Path(attnprobe.__file__).parents[1] / "conf"
QUESTIONS = ["stories", "babi1", "babi2", "babi3", "snli", "cnn_qa"]
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("jain*.yaml"))


def composed(*overrides):
    return OmegaConf.to_container(runs.composed(*overrides), resolve=True)


@pytest.mark.parametrize("model", ["lstm", "cnn", "average"])
def test_task_qa_is_one_switch(model):
    config = composed("task=qa", f"model={model}")
    assert config["data"]["name"] == "stories"
    assert config["model"]["question_encoder"] == config["model"]["encoder"]
    assert instantiate(config["model"]["decoder"]).func is QuestionDecoder
    assert config["training"]["recipe"]["reduction"] == "mean"
    assert config["training"]["recipe"]["selection_metric"] == "accuracy"
    assert config["training"]["recipe"]["attention_weight_decay"] is None
    assert config["probe"]["adversarial"]["epsilon"] == 0.05


def test_without_it_nothing_asks():
    config = composed()
    assert config["data"]["name"] == "testbed"
    assert "question_encoder" not in config["model"]
    assert instantiate(config["model"]["decoder"]).func is LinearDecoder
    assert config["probe"]["adversarial"]["epsilon"] == 0.01


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_and_command_line_have_the_last_word(name, order):
    words = ["task=qa", "data=snli", "model=cnn", f"+experiment={name}", "probe=[permutation]", "training.epochs=3"]
    config = composed(*words[::order])
    assert config["data"]["name"] == "snli"
    assert config["experiment"] == name
    assert list(config["probe"]) == ["permutation"]
    assert config["training"]["epochs"] == 3
    assert composed("task=qa", f"+experiment={name}")["data"]["name"] == "stories"


@pytest.mark.parametrize(
    ("data", "epochs", "batch", "width"),
    [("babi1", 100, 50, 32), ("babi3", 100, 50, 32), ("snli", 25, 128, 128), ("cnn_qa", 25, 90, 128)],
)
def test_a_recipe_knows_its_data_sets(data, epochs, batch, width):
    config = composed("task=qa", f"data={data}")
    assert (config["training"]["epochs"], config["data"]["batch_size"]) == (epochs, batch)
    assert config["model"]["encoder"]["hidden_size"] == width
    assert config["model"]["question_encoder"]["hidden_size"] == width
    # another recipe is left as it is
    assert composed("task=qa", f"data={data}", "training=jain")["training"]["epochs"] == 8


@pytest.mark.parametrize("name", QUESTIONS)
def test_question_data_sets_name_their_columns(name):
    data = composed("task=qa", f"data={name}")["data"]
    assert data["name"] == name
    assert data["question"] in ("question", "hypothesis")


@pytest.mark.parametrize("model", ["lstm", "cnn"])
def test_stories_are_trained_probed_and_explained(model, tmp_path):
    chosen = (f"model={model}", "model/attention=dot") if model == "cnn" else (f"model={model}",)
    directory = run(runs.composed("task=qa", *chosen, *runs.SMALL, *runs.SMALL_ADVERSARY, f"output={tmp_path}"))
    results = attnprobe.read_results(directory)
    assert set(results["probe"]) >= {"permutation", "adversarial"}
    example = attnprobe.read_examples(directory).iloc[0]
    trained = attnprobe.load_run(directory)
    data = instantiate(trained.config["data"], seed=0)
    data.setup()
    number = int(example["example_id"])
    text, question = " ".join(example["tokens"]), " ".join(data.splits["test"].question(number))
    told = trained.explain([text], [question]).iloc[0]
    assert told["tokens"] == list(example["tokens"])
    torch.testing.assert_close(torch.tensor(told["attention"]), torch.tensor(example["attention"]))
    torch.testing.assert_close(
        torch.tensor(list(told["probability"].values())), torch.tensor(example["probability"]), check_dtype=False
    )
    only = trained.explain([text], [question], [["attic", "cellar"]]).iloc[0]
    assert only["prediction"] in ("attic", "cellar")
    with pytest.raises(UserError, match=r"expected questions=\["):
        trained.explain([text])


def test_model_and_data_must_agree_on_questions(tmp_path):
    with pytest.raises(UserError, match=r"does not read them: add task=qa"):
        run(runs.small_run(tmp_path, "data=stories"))
    with pytest.raises(UserError, match=r"data set gives none: .*data=stories"):
        run(runs.small_run(tmp_path, "task=qa", "data=testbed"))
    assert not list(tmp_path.rglob("*.yaml"))


def test_any_word_of_the_vocabulary_may_be_the_answer(tmp_path):
    chosen = ("task=qa", "data.classes_from=vocabulary", "data.candidates=null", "probe=[]")
    directory = run(runs.composed(*runs.SMALL, *chosen, f"output={tmp_path}"))
    examples = attnprobe.read_examples(directory)
    assert len(examples.iloc[0]["probability"]) > 30
    assert set(attnprobe.read_results(directory)["probe"]) == {"training", "performance"}
