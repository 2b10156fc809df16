import numpy as np
import pytest
import yaml

import attnprobe
from attnprobe.errors import UserError
from attnprobe.results import read_examples
from attnprobe.run import run
from tests.runs import small_run


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return run(small_run(tmp_path_factory.mktemp("runs")))


def test_explain_says_of_a_test_text_what_the_run_said(directory):
    loaded = attnprobe.load_run(directory)
    examples = read_examples(directory)
    texts = [" ".join(tokens) for tokens in examples["tokens"]]
    explained = loaded.explain(texts)
    assert list(explained["prediction"]) == [loaded.classes[number] for number in examples["prediction"]]
    for (_, mine), (_, theirs) in zip(explained.iterrows(), examples.iterrows(), strict=True):
        assert list(mine["tokens"]) == list(theirs["tokens"])
        np.testing.assert_allclose(mine["attention"], theirs["attention"], atol=1e-5)
        np.testing.assert_allclose(list(mine["probability"].values()), theirs["probability"], atol=1e-5)


def test_explain_wants_texts(directory):
    loaded = attnprobe.load_run(directory)
    with pytest.raises(UserError, match="expected a list"):
        loaded.explain("a film")
    with pytest.raises(UserError, match="text 1 "):
        loaded.explain(["a film", " "])


def test_load_run_wants_a_finished_run(tmp_path):
    with pytest.raises(UserError, match=r"no manifest\.json"):
        attnprobe.load_run(tmp_path)


def test_a_run_directory_is_data_and_not_code(directory, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    config = yaml.safe_load((copy / "config.yaml").read_text())
    config["model"]["encoder"]["_target_"] = "os.system"
    (copy / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(UserError, match=r"asks for os\.system, which is outside the trusted packages"):
        attnprobe.load_run(copy)
