"""Where conf/ lies, and how a configuration is composed from it outside of a command line."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hydra import initialize_config_dir
from omegaconf import OmegaConf

PACKAGE = Path(__file__).resolve().parent
CONFIGURATION = next(p for p in (PACKAGE / "conf", PACKAGE.parent / "conf") if p.is_dir())
"""Beside the package in a checkout, inside it in an installed copy."""


@contextmanager
def composing() -> Iterator[None]:
    """Within it `hydra.compose("config", overrides=…)` reads conf/."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        yield


def name_of_files(path: str | Mapping[str, str] | None) -> str:
    """What a data set of local files is called where nobody says: the file's name without its endings, or the folder's.

    >>> name_of_files("data/my reviews.csv.gz"), name_of_files("corpora/sst/"), name_of_files({"train": "tweets/train.csv"})
    ('my_reviews', 'sst', 'tweets')
    """
    if path is None:
        return "files"
    file = Path(str(path.get("train", "")) if isinstance(path, Mapping) else str(path))
    stem = re.sub(r"(\.(jsonl?|csv|tsv|parquet))?(\.gz)?$", "", file.name, flags=re.IGNORECASE)
    if stem.lower() == "train":
        stem = file.absolute().parent.name
    return re.sub(r"[^\w.-]+", "_", stem)[:60].strip("._-") or "files"


OmegaConf.register_new_resolver("name_of_files", name_of_files, replace=True)
