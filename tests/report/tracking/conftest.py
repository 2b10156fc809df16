from pathlib import Path

import pytest

from attnprobe.report import tracking as log


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Nobody's settings, and W&B's own folders; returns the one where it keeps what it will
    upload."""
    for name in ("WANDB_MODE", "WANDB_RUN_GROUP", "WANDB_TAGS", "WANDB_DIR", "WANDB_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "wandb-cache"))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "wandb-data"))
    return tmp_path / "wandb-data"


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "draw_figures", lambda *given, **named: [])
