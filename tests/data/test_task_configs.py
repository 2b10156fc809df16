import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch.testing import assert_close

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.models.decoders import LinearDecoder, QuestionDecoder
from attnprobe.runs.run import run
from tests import small_runs as runs


def composed(*overrides):
    return OmegaConf.to_container(runs.composed(*overrides), resolve=True)


def test_task_qa_is_one_switch():
    config = composed("task=qa", "model=cnn", "+experiment=jain_adversarial")
    assert config["data"]["name"] == "stories"
    assert config["model"]["question_encoder"] == config["model"]["encoder"]
    assert instantiate(config["model"]["decoder"]).func is QuestionDecoder


def test_the_order_of_the_switches_does_not_matter():
    config = composed("+experiment=jain_adversarial", "data=snli", "task=qa")
    assert config["data"]["name"] == "snli"


def test_without_the_switch_no_question_is_read():
    config = composed()
    assert "question_encoder" not in config["model"]
    assert instantiate(config["model"]["decoder"]).func is LinearDecoder


def test_stories_are_trained_probed_and_explained(tmp_path):
    config = runs.composed(
        "task=qa", "model=lstm", *runs.SMALL, *runs.SMALL_ADVERSARY, f"output={tmp_path}"
    )
    directory = run(config)
    results = attnprobe.read_results(directory)
    assert set(results["probe"]) >= {"permutation", "adversarial"}
    example = attnprobe.read_examples(directory).iloc[0]
    trained = attnprobe.load_run(directory)
    data = instantiate(trained.config["data"], seed=0)
    data.setup()
    number = int(example["example_id"])
    text = " ".join(example["tokens"])
    question = " ".join(data.splits["test"].question(number))
    explained = trained.explain([text], [question]).iloc[0]
    assert explained["tokens"] == list(example["tokens"])
    assert_close(torch.tensor(explained["attention"]), torch.tensor(example["attention"]))
    assert_close(
        torch.tensor(list(explained["probability"].values())),
        torch.tensor(example["probability"]),
        check_dtype=False,
    )
    restricted = trained.explain([text], [question], [["attic", "cellar"]]).iloc[0]
    assert restricted["prediction"] in ("attic", "cellar")
    with pytest.raises(UserError, match=r"expected questions=\["):
        trained.explain([text])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["data=stories"], r"does not read them: add task=qa"),
        (["task=qa", "data=testbed"], r"data set gives none: .*data=stories"),
    ],
)
def test_model_and_data_must_agree_on_questions(tmp_path, overrides, message):
    with pytest.raises(UserError, match=message):
        run(runs.small_run(tmp_path, *overrides))
    assert not list(tmp_path.rglob("*.yaml"))


FEW_CODES = (
    "task=labels",
    *runs.SMALL,
    "data.source.codes=3",
    "data.source.length=15",
    "training.epochs=3",
)


@pytest.mark.parametrize("model", ["caml", pytest.param("laat", marks=pytest.mark.slow)])
def test_texts_with_labels_are_trained_probed_and_explained(model, tmp_path):
    config = runs.composed(
        *FEW_CODES, f"model={model}", "probe=[permutation,erasure,agreement]", f"output={tmp_path}"
    )
    directory = run(config)
    results = attnprobe.read_results(directory)
    performance = results[results["probe"] == "performance"]["metric"]
    assert {"label_f1_macro", "label_f1_micro", "precision_at_5", "r_precision"} <= set(performance)
    examples = attnprobe.read_examples(directory)
    assert len(examples) == 3 * 30
    texts = examples["tokens"].map(" ".join)
    assert texts.nunique() == 30
    # every interval takes the questions about one text together
    first = results.attrs["asked"][results["run_id"].iloc[0]]
    assert len(first) == 2 * 30

    trained = attnprobe.load_run(directory)
    names = ["code0", "code1", "code2"]
    explained = trained.explain([texts[0]] * 3, names)
    own = examples[texts == texts[0]]
    for number, (_, example) in enumerate(own.iterrows()):
        assert_close(
            torch.tensor(explained["attention"][number]), torch.tensor(example["attention"])
        )
