"""Whether a bench is there, asked before anything heavy is imported."""

from pathlib import Path

from attnprobe.core.errors import UserError

MODELS = "models.parquet"
"""The table of a bench's models, in its folder."""


def refuse_missing_bench(folder: Path) -> None:
    """Refuse a folder that holds no bench.

    Raises:
        UserError: its table of models is not there.
    """
    if not (folder / MODELS).is_file():
        raise UserError(
            f"{folder} holds no bench: expected a folder with {MODELS}; unpack that of a release, "
            f"or make one with `python -m research.bench make {folder}`, and name it with --data"
        )
