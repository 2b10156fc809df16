"""Whole runs small enough for a test."""

from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from attnprobe.__main__ import CONFIGURATION

SMALL = (
    "data.source.train_size=120",
    "data.source.validation_size=40",
    "data.source.test_size=30",
    "data.embedding_size=12",
    "training.epochs=2",
    "trainer.accelerator=cpu",
    "figures=false",
)
SMALL_ADVERSARY = ("probe.adversarial.steps=20", "probe.adversarial.restarts=2")


def composed(*overrides: str) -> DictConfig:
    """The configuration that these command-line arguments give."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        return compose("config", overrides=list(overrides))


def small_run(output: Path, *overrides: str, probes: str = "[permutation]") -> DictConfig:
    """The configuration of a run on the testbed that takes about a second."""
    return composed(*SMALL, f"probe={probes}", f"output={output}", *overrides)
