"""Generated command lines: composed, checked and constructed, but not trained.

Each ends in a run or one line.
"""

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hydra import compose
from hydra.errors import InstantiationException
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.errors import UserError
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import TestbedSource
from attnprobe.runs.answers import GROUPS, answer, choices, known_settings, readable
from attnprobe.runs.build import untrained
from attnprobe.runs.composition import composing
from attnprobe.runs.settings import constructible
from tests.remembered import composing_once

VALUES = (
    "0",
    "1",
    "-1",
    "2",
    "3.5",
    "-0.5",
    "1e-3",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "true",
    "null",
    "abc",
    "LSTM",
    "none",
    "auto",
    "''",
    "'a b'",
    "[]",
    "[1]",
    "[[1]]",
    "[null]",
    "[abc]",
    "{}",
    "{a: 1}",
    "{train: 1}",
    "{_target_: os.system}",
    "???",
    "'${nope}'",
    "'${seed}'",
    "'${'",
    "${seed}",
    "评论",
    "a(b",
    "..",
    "../x",
    "a/b",
    "\\",
    "'\x1b[31m'",
    "\u202e",
    "1_000",
    "0x10",
    "99999999999999999999",
    "cpu",
    "spacy",
    "whitespace",
    "lower",
    "[lower]",
    "[lower,lower]",
    "mask",
    "rule",
    "torch.optim.SGD",
    "attnprobe.models.encoders.CNNEncoder",
    "attnprobe.probes.erasure.Erasure",
    "no.such.Class",
    ".",
    "a.b",
)
SIGNS = ("", "", "", "", "", "+", "++", "~")


def generated(number: int, seed: int = 0) -> list[str]:
    """The command line of this number, always the same one."""
    source = random.Random(f"{seed}-{number}")
    keys = [setting for setting in known_settings() if not setting.startswith("hydra")]
    parts = []
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        kind = source.random()
        if kind < 0.25:
            group = source.choice(GROUPS)
            name = source.choice([*choices(group), source.choice(VALUES)])
            if group == "probe":
                name = f"[{name}]"
            sign = source.choice(("", "", "+"))
            parts.append(f"{sign}{group}={misspelt(name, source)}")
        elif kind < 0.95:
            key = misspelt(source.choice(keys), source)
            sign = source.choice(SIGNS)
            value = "" if sign == "~" else f"={source.choice(VALUES)}"
            parts.append(f"{sign}{key}{value}")
        else:
            parts.append(source.choice(VALUES))
    return parts


def misspelt(name: str, source: random.Random) -> str:
    """The name, one time in ten without one of its letters."""
    if source.random() > 0.1 or len(name) < 3:
        return name
    place = source.randrange(len(name))
    return name[:place] + name[place + 1 :]


@cache
def data() -> TextDataModule:
    """A small data set, for the model's sizes."""
    source = TestbedSource(train_size=60, validation_size=20, test_size=20)
    module = TextDataModule("testbed", source, tokenizer="whitespace", embedding_size=8)
    module.setup("fit")
    return module


def attempt(overrides: list[str]) -> None:
    """Compose, check and construct what a command line asks for."""
    overrides = [readable(override) for override in overrides]
    try:
        config = compose("config", overrides=overrides)
    except Exception as error:  # whatever composing raises is answered by the command line
        raise UserError(answer(error, overrides)) from None
    try:
        settings = constructible(config, overrides)
        is_run = config.study is None and not settings.awaits_teacher
        if is_run and config.run is None:
            classifier: Any = untrained(settings.parts, data())
            # what a schedule asks of a trainer
            classifier.trainer = SimpleNamespace(estimated_stepping_batches=100)
            classifier.configure_optimizers()
    except (UserError, InstantiationException, OmegaConfBaseException) as error:
        # as the command line does
        raise UserError(answer(error, overrides)) from None


def case(number: int, folder: Path, seed: int = 0) -> tuple[str, Callable[[], None]]:
    """The command line of this number."""
    overrides = generated(number, seed)
    return str(overrides), lambda: attempt(overrides)


@contextmanager
def ready() -> Iterator[None]:
    """A context in which cases can be attempted: with Hydra and a small data set."""
    data()
    with composing(), composing_once(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known_settings()
        yield
