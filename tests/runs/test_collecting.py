from importlib.metadata import PackageNotFoundError, version

import attnprobe
from attnprobe.runs import collecting


def version_of_installed(name):
    """What `importlib.metadata.version` says where attnprobe is a copy that is not installed."""
    if name == "attnprobe":
        raise PackageNotFoundError(name)
    return version(name)


def test_a_copy_that_is_not_installed_knows_its_version(monkeypatch):
    monkeypatch.setattr(collecting, "version", version_of_installed)
    versions = collecting.made_with("spacy")["versions"]
    assert versions["attnprobe"] == attnprobe.__version__
    assert versions["spacy"] == version("spacy")
