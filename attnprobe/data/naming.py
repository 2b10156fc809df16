"""What a data set is called, where nobody names it, and on the hub."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
"""What is published on the Hugging Face hub: OWNER/NAME."""


def name_of_files(path: str | os.PathLike | Mapping[str, str] | None) -> str:
    """The default name of a data set of local files: its file's without endings, or its folder's.

    >>> name_of_files("data/my reviews.csv.gz"), name_of_files("corpora/sst/")
    ('my_reviews', 'sst')
    >>> name_of_files({"train": "tweets/train.csv"})
    'tweets'
    """
    if path is None:
        return "files"
    if isinstance(path, Mapping):
        path = path.get("train", path.get("test", ""))
    file = Path(str(path))
    stem = re.sub(
        r"(\.(jsonl?|csv|tsv|parquet|xlsx|ckpt))?(\.gz)?$", "", file.name, flags=re.IGNORECASE
    )
    if stem.lower() == "train":
        stem = file.absolute().parent.name
    return re.sub(r"[^\w.-]+", "_", stem)[:60].strip("._-") or "files"
