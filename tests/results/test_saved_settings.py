import importlib

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


def test_every_moved_name_leads_to_something():
    for old, new in MOVED.items():
        module, _, name = (
            new.rpartition(".") if old.rpartition(".")[2][0].isupper() else (new, "", "")
        )
        found = importlib.import_module(module)
        stem = old.rpartition(".")[2].replace("_", "")
        named = [one.lower() for one in vars(found)]
        assert (
            hasattr(found, name)
            if name
            else "importance" not in old or stem in named or stem == "member"
        ), old
