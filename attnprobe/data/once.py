"""The members of a study train on the same texts: read and prepared once, for as long as the study lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from attnprobe.data.prepare import Prepared, prepare
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import Source


@dataclass
class Kept:
    """The data set that was prepared last, what it was prepared from, and what was guessed while it was read."""

    made_from: object = None
    prepared: Prepared | None = None
    notes: tuple[str, ...] = ()


_KEPT: ContextVar[Kept | None] = ContextVar("kept", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """While this lasts the last data set stays in memory, and is not read again where settings, files and the files' sizes
    and times are the same."""
    token = _KEPT.set(Kept())
    try:
        yield
    finally:
        _KEPT.reset(token)


def prepared_from(settings: DataSettings, source: Source) -> tuple[Prepared, tuple[str, ...]]:
    """The prepared data set and what was guessed while it was read.

    Raises:
        UserError: the rows cannot be used as configured; the message says what to change.
    """
    kept = _KEPT.get()
    if kept is None:
        return prepare(settings, source.load()), source.notes
    wanted = made_from(settings, source)
    if kept.prepared is None or kept.made_from != wanted:
        kept.prepared = None  # two at a time would need the memory of both
        kept.prepared, kept.made_from = prepare(settings, source.load()), wanted
        kept.notes = source.notes
    # what a run adds to its data is not seen by the next one
    prepared = kept.prepared
    counts = {split: dict(count) for split, count in prepared.counts.items()}
    return replace(prepared, splits=dict(prepared.splits), counts=counts, checks=list(prepared.checks)), kept.notes


def made_from(settings: DataSettings, source: Source) -> tuple[Any, ...]:
    """All that a prepared data set depends on."""
    asked = {name: value for name, value in vars(source).items() if name != "notes"}
    stamps = {split: (path, path.stat().st_size, path.stat().st_mtime_ns) for split, path in source.files().items()}
    return settings, type(source), asked, stamps
