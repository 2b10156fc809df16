import importlib

import pytest
import yaml

from attnprobe.results.directory import CONFIG
from attnprobe.results.saved_settings import MOVED, read_settings


def test_a_moved_class_is_found_where_it_is_now(tmp_path):
    old = {
        "importance": {"lime": {"_target_": "attnprobe.importance.lime.Lime", "samples": 5}},
        "training": {"recipe": {"_target_": "attnprobe.models.classifier.Recipe"}},
        "model": {
            "encoder": {"_target_": "attnprobe.models.encoders.LSTMEncoder"},
            "others": [{"_target_": "a.b.C"}],
        },
    }
    (tmp_path / CONFIG).write_text(yaml.safe_dump(old))
    settings = read_settings(tmp_path)
    assert settings["importance"]["lime"] == {
        "_target_": "attnprobe.importance.perturbation.Lime",
        "samples": 5,
    }
    assert settings["training"]["recipe"]["_target_"] == "attnprobe.models.recipe.Recipe"
    assert settings["model"] == old["model"]


CLASSES = {old for old in MOVED if old.rpartition(".")[2][0].isupper()}


@pytest.mark.parametrize("old", sorted(CLASSES))
def test_a_moved_class_leads_to_a_class(old):
    module, _, name = MOVED[old].rpartition(".")
    assert hasattr(importlib.import_module(module), name)


@pytest.mark.parametrize("old", sorted(MOVED.keys() - CLASSES))
def test_a_moved_module_leads_to_one_that_holds_the_importance_of_its_name(old):
    module = importlib.import_module(MOVED[old])
    stem = old.rpartition(".")[2].replace("_", "")
    if "importance" in old and stem != "member":
        assert stem in [name.lower() for name in vars(module)]
