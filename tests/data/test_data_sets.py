from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.data.sources import FileSource

CONF = Path(attnprobe.__file__).parents[1] / "conf" / "data"
DATA_SETS = sorted(path.stem for path in CONF.glob("*.yaml") if path.stem != "base")
LOCAL_ONLY = {
    "anemia",
    "cnn_qa",
    "diabetes",
    "geco",
    "goemotions",
    "imdb10",
    "movies",
    "toxic_sentences",
    "tweets_adr",
}


def composed(name, *overrides):
    with initialize_config_dir(str(CONF.parent), version_base=None):
        config = compose("config", [f"data={name}", *overrides])
    settings = OmegaConf.to_container(config, resolve=True)["data"]
    return instantiate(settings, seed=0)


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_data_set_composes_and_says_what_it_lacks(name, monkeypatch, tmp_path):
    monkeypatch.setenv("ATTNPROBE_DATA_DIR", str(tmp_path))
    data = composed(name)
    assert data.name == ("files" if name == "label_files" else name)
    if name in LOCAL_ONLY:
        with pytest.raises(
            UserError, match=rf"no local files at {tmp_path}/{name}: put .*is on no hub"
        ):
            data.setup()


@pytest.mark.slow
@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "vocabulary", "train", "test"),
    [
        ("sst", 13_826, [3034, 3321], [863, 862]),
        ("imdb", 12_487, None, [2184, 2172]),
        ("babi1", 24, None, None),
        ("babi2", 38, None, None),
        ("babi3", 39, None, None),
    ],
)
def test_counts_of_the_paper(name, vocabulary, train, test):
    data = composed(name)
    try:
        FileSource(data.source.folder).files()
    except UserError:
        pytest.skip(f"no {name} below ATTNPROBE_DATA_DIR")
    data.setup()
    assert len(data.vocabulary) == vocabulary
    if test is not None:
        assert list(data.counts["test"]["per class"].values()) == test
    if train is not None:
        assert list(data.counts["train"]["per class"].values()) == train
    if name.startswith("babi"):
        assert all(count["rationale does not fit"] == 0 for count in data.counts.values())
