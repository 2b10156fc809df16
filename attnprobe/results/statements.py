"""What a manifest says of its run, of importances, metrics and the data: checked before anything is made of it, because
whoever made the run may have written and sealed it."""

from pathlib import Path
from typing import Any

from attnprobe.results.checksums import damaged

SECTION = "data_section"
"""The manifest's key of what is said of the data before training: `notes`, what was guessed while reading, one sentence
each; `checks`, see `attnprobe.data.looks.Check`."""
TEXTS = ("title", "colour")
"""Entries of an importance's facts that are text."""
NAMES = ("run_id", "experiment", "data", "model")
"""Entries of a manifest that are text."""


def check_statements(path: Path, content: dict[str, Any]) -> None:
    """Whether a manifest's names, classes, settings, counts, importances, metrics and data section have the types that a run
    writes.

    Raises:
        DamagedRun: they do not.
    """
    if not all(isinstance(content.get(name, ""), str) for name in NAMES) or not _is_whole(content.get("seed", 0)):
        raise damaged(path, "it does not say as a run does which run it is of")
    if not _are(content.get("classes", []), str):
        raise damaged(path, "its classes are no list of names")
    if not _are_settings(content.get("training", {})):
        raise damaged(path, "its settings (training) are not as a run writes them")
    if not _are_counts(content.get("counts", {})):
        raise damaged(path, "its counts are not as a run writes them")
    for probe, entry in content.get("tables", {}).items():
        told = entry.get("importances", {})
        if not isinstance(told, dict) or not all(_is_fact(said) for said in told.values()):
            raise damaged(path, f"what it says of the importances of {probe!r} is not as a run says it")
        metrics = entry.get("metrics", {})
        if not isinstance(metrics, dict) or not all(_is_metric(one) for one in metrics.values()):
            raise damaged(path, f"what it says of the metrics of {probe!r} is not as a run says it")
        if not _is_number(entry.get("seconds", 0)):
            raise damaged(path, f"it does not say how many seconds {probe!r} took")
    said = content.get(SECTION, {})
    if not isinstance(said, dict) or not _are(said.get("notes", []), str) or not _are(said.get("checks", []), dict):
        raise damaged(path, f"its {SECTION} is not as a run writes it")
    if not all(_is_check(one) for one in said.get("checks", [])):
        raise damaged(path, f"a check in its {SECTION} is not as a run writes it")


def _are_settings(said: Any) -> bool:
    """Of them what a report reads: which model, which stages, which attention, which data."""
    if not isinstance(said, dict) or not all(isinstance(said.get(part, {}), dict) for part in ("model", "data")):
        return False
    model = said.get("model", {})
    stages = all(isinstance(model.get(stage, {}), dict) for stage in ("encoder", "attention"))
    return stages and isinstance(model.get("heads"), list | None)


def _are_counts(said: Any) -> bool:
    """By split: numbers, and numbers by name."""
    if not isinstance(said, dict) or not all(isinstance(one, dict) for one in said.values()):
        return False
    entries = [value for name, one in said.items() if name != "vectors" for value in one.values()]
    numbers = [number for value in entries for number in (value.values() if isinstance(value, dict) else [value])]
    return all(map(_is_number, numbers))


def _are(values: Any, kind: type) -> bool:
    return isinstance(values, list) and all(isinstance(one, kind) for one in values)


def _is_fact(said: Any) -> bool:
    named = isinstance(said, dict) and all(isinstance(said.get(name, ""), str) for name in TEXTS)
    return named and _is_number(said.get("seconds", 0))


def _is_metric(said: Any) -> bool:
    if not isinstance(said, dict) or not all(isinstance(said.get(name), str) for name in ("unit", "step")):
        return False
    ends = (said.get(end) is None or _is_number(said[end]) for end in ("low", "high"))
    return all(ends) and said.get("higher_is_better") in (None, True, False)


def _is_check(one: dict[str, Any]) -> bool:
    texts = isinstance(one.get("name"), str) and isinstance(one.get("sentence"), str)
    limit = one.get("threshold")
    return (
        texts
        and isinstance(one.get("warns"), bool)
        and _is_number(one.get("value"))
        and (limit is None or _is_number(limit))
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
