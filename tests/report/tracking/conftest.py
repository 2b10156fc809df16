from pathlib import Path

import pytest

from attnprobe.report import tracking as log


def keep_offline(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Nobody's settings, and W&B's own folders; returns the one where it keeps what it will
    upload."""
    for name in ("WANDB_MODE", "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_DIR", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(folder / "wandb-cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(folder / "wandb-data"))
    return folder / "wandb-data"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where W&B keeps what it will upload."""
    return keep_offline(monkeypatch, tmp_path)


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "png_figures", lambda *arguments, **named: [])
