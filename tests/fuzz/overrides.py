"""Generated command lines: composed, checked and constructed, all but the training. Every answer is a run or one line."""

import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from hydra import compose
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import TestbedSource
from attnprobe.runs.answers import GROUPS, answer, choices, known_settings, readable
from attnprobe.runs.build import untrained
from attnprobe.runs.composition import composing
from attnprobe.runs.settings import constructible
from tests.remembered import composing_once

VALUES = (
    "0", "1", "-1", "2", "3.5", "-0.5", "1e-3", "1e400", "nan", "inf", "-inf", "true", "null", "abc", "LSTM", "none", "auto",
    "''", "'a b'", "[]", "[1]", "[[1]]", "[null]", "[abc]", "{}", "{a: 1}", "{train: 1}", "{_target_: os.system}", "???",
    "'${nope}'", "'${seed}'", "'${'", "${seed}", "评论", "a(b", "..", "../x", "a/b", "\\", "'\x1b[31m'", "\u202e", "1_000",
    "0x10", "99999999999999999999", "cpu", "spacy", "whitespace", "lower", "[lower]", "[lower,lower]", "mask", "rule",
    "torch.optim.SGD", "attnprobe.models.encoders.CNNEncoder", "attnprobe.probes.erasure.Erasure", "no.such.Class", ".",
    "a.b",
)  # fmt: skip
SIGNS = ("", "", "", "", "", "+", "++", "~")


def generated(number: int, seed: int = 0) -> list[str]:
    source = random.Random(f"{seed}-{number}")
    keys = [one for one in known_settings() if not one.startswith("hydra")]
    parts = []
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        kind = source.random()
        if kind < 0.25:
            group = source.choice(GROUPS)
            name = source.choice([*choices(group), source.choice(VALUES)])
            name = f"[{name}]" if group == "probe" else name
            parts.append(f"{source.choice(('', '', '+'))}{group}={misspelt(name, source)}")
        elif kind < 0.95:
            key = misspelt(source.choice(keys), source)
            sign = source.choice(SIGNS)
            parts.append(f"{sign}{key}" if sign == "~" else f"{sign}{key}={source.choice(VALUES)}")
        else:
            parts.append(source.choice(VALUES))
    return parts


TRAINER = SimpleNamespace(estimated_stepping_batches=100)
"""What a schedule asks of the trainer."""


def misspelt(name: str, source: random.Random) -> str:
    if source.random() > 0.1 or len(name) < 3:
        return name
    place = source.randrange(len(name))
    return name[:place] + name[place + 1 :]


def outcome(overrides: list[str], data: TextDataModule) -> str:
    """What a command line comes to: `run`, or the line that it is answered with. Anything else is raised. `data`: set up, for
    the model's sizes."""
    overrides = [readable(one) for one in overrides]
    try:
        config = compose("config", overrides=overrides)
    except Exception as error:  # whatever composing raises is answered by the command line
        return answer(error, overrides)
    try:
        settings = constructible(config, overrides)
        if settings is not None and config.run is None:
            instantiate(settings.config["data"], seed=settings.config["seed"])
            classifier: Any = untrained(settings.config, data)
            classifier.trainer = TRAINER
            classifier.configure_optimizers()
    except (UserError, InstantiationException, OmegaConfBaseException) as error:  # as the command line does
        return answer(error, overrides)
    return "run"


def failure(number: int, data: TextDataModule, seed: int = 0) -> str | None:
    """What the command line of this number ends in, where that is neither a run nor one printable line."""
    overrides = generated(number, seed)
    try:
        line = outcome(overrides, data)
    except Exception as error:
        return f"{overrides}: {type(error).__name__}: {str(error)[:300]}"
    if "\n" in line or not line.strip() or "Traceback" in line or not visible(line).isprintable():
        return f"{overrides}: {line!r}"
    return None


@contextmanager
def ready() -> Iterator[Callable[[int, int], str | None]]:
    """Within it `failure(number, seed)` can be asked for: Hydra and a small data set are at hand."""
    data = TextDataModule(
        "testbed",
        TestbedSource(train_size=60, validation_size=20, test_size=20),
        tokenizer="whitespace",
        embedding_size=8,
    )
    data.setup("fit")
    with composing(), composing_once(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known_settings()
        yield lambda number, seed: failure(number, data, seed)
