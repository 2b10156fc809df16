"""Where files are found, and which of them hold which split: what can be said before anything is read."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from attnprobe.errors import UserError

SPLITS = ("train", "validation", "test")
DATA_DIR = "ATTNPROBE_DATA_DIR"
ALIASES = {"train": ("train",), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
BUILDERS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".xlsx": "excel"}
"""File endings and what reads them: a builder of `datasets`, or `excel`; each text format also with `.gz` after it."""
ENDINGS = ".jsonl, .json, .csv, .tsv (each also with .gz), .parquet and .xlsx"


def ending_of(path: Path) -> str:
    """The file's ending without `.gz`, lower case: `.csv` for `rows.CSV.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def find_path(path: str | os.PathLike) -> Path:
    """A path relative to the working directory, or else to `ATTNPROBE_DATA_DIR`.

    Raises:
        UserError: it is in neither place.
    """
    base = os.environ.get(DATA_DIR)
    try:
        here = Path(path).expanduser()
        for place in [here] if base is None or here.is_absolute() else [here, Path(base) / here]:
            if place.exists():
                return place
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null character, or nobody's home folder
        raise UserError(
            f"{str(path)[:100]!r} is not a path ({error}): give that of an existing file or folder"
        ) from None
    looked = f"{here.absolute()}" + (f" and {Path(base) / here}" if base and not here.is_absolute() else "")
    hint = "" if base else f", or set {DATA_DIR} to the folder that your data are in"
    raise UserError(f"{path} does not exist (looked at {looked}): give an existing path{hint}")


def files_of(path: str | os.PathLike | Mapping[str, str] | None) -> dict[str, Path]:
    """The file of each split.

    Args:
        path: one file, a folder, or `{train: file, …}`; see `attnprobe.data.sources.FileSource`.

    Raises:
        UserError: nothing there, or no training file.
    """
    if path is None:
        raise UserError("data.path is not set: give a file or folder, for example data.path=reviews.csv")
    if isinstance(path, Mapping):
        if unknown := sorted(str(split) for split in path if split not in SPLITS):
            raise UserError(f"data.path names the splits {', '.join(unknown)}: expected {', '.join(SPLITS)}")
        files = {split: find_path(path[split]) for split in SPLITS if split in path}
    elif (place := find_path(path)).is_dir():
        files = files_in(place)
    else:
        files = {"train": place}
    if "train" not in files:
        raise UserError(f"data.path={path}: there is no training file; expected train.* ({ENDINGS})")
    return files


def check_ending(path: Path) -> str:
    """The ending of a file that can be read.

    Raises:
        UserError: unknown ending, or missing or empty file.
    """
    ending = ending_of(path)
    if ending not in BUILDERS:
        old = ". Save it as .xlsx" if ending in (".xls", ".ods") else ""
        raise UserError(
            f"{path}: cannot read a file that ends in {path.suffix or 'nothing'!r}; expected {ENDINGS}{old}"
        )
    if ending == ".xlsx" and find_spec("openpyxl") is None:
        raise UserError(
            f"{path}: reading .xlsx needs pip install 'attnprobe[excel]'; or save it in Excel as CSV UTF-8 (comma delimited)"
        )
    if not path.is_file():
        raise UserError(f"{path} is not a file: expected one of {ENDINGS}")
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty: expected at least one row")
    return ending


def files_in(folder: Path) -> dict[str, Path]:
    """The files of a folder by split: `train.*`, `validation.*` (or valid, val, dev) and `test.*`.

    Raises:
        UserError: no such file, or two for one split.
    """
    files: dict[str, Path] = {}
    for split, names in ALIASES.items():
        candidates = [
            path
            for path in sorted(folder.iterdir())
            if ending_of(path) in BUILDERS and path.name.split(".")[0].lower() in names
        ]
        if len(candidates) > 1:
            raise UserError(
                f"{folder} has {len(candidates)} files for the split {split} ({', '.join(p.name for p in candidates)}): "
                f"keep one, or name the files, for example 'data.path={{train: a.csv, test: b.csv}}'"
            )
        if candidates:
            files[split] = candidates[0]
    if not files:
        there = sorted(path.name for path in folder.iterdir())
        raise UserError(
            f"{folder} holds no train, validation or test file: expected train.* with one of the endings {ENDINGS}; "
            f"there is {', '.join(there[:8]) or 'nothing'}{' …' if len(there) > 8 else ''}"
        )
    return files
