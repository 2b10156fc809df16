import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

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
    assert (
        composed("+experiment=jain_adversarial", "data=snli", "task=qa")["data"]["name"] == "snli"
    )  # any order
    assert config["model"]["question_encoder"] == config["model"]["encoder"]
    assert instantiate(config["model"]["decoder"]).func is QuestionDecoder
    without = composed()
    assert "question_encoder" not in without["model"]
    assert instantiate(without["model"]["decoder"]).func is LinearDecoder


def test_stories_are_trained_probed_and_explained(tmp_path):
    directory = run(
        runs.composed(
            "task=qa", "model=lstm", *runs.SMALL, *runs.SMALL_ADVERSARY, f"output={tmp_path}"
        )
    )
    results = attnprobe.read_results(directory)
    assert set(results["probe"]) >= {"permutation", "adversarial"}
    example = attnprobe.read_examples(directory).iloc[0]
    trained = attnprobe.load_run(directory)
    data = instantiate(trained.config["data"], seed=0)
    data.setup()
    number = int(example["example_id"])
    text = " ".join(example["tokens"])
    question = " ".join(data.splits["test"].question(number))
    told = trained.explain([text], [question]).iloc[0]
    assert told["tokens"] == list(example["tokens"])
    torch.testing.assert_close(torch.tensor(told["attention"]), torch.tensor(example["attention"]))
    torch.testing.assert_close(
        torch.tensor(list(told["probability"].values())),
        torch.tensor(example["probability"]),
        check_dtype=False,
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
