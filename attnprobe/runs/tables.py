"""The tables of what was measured, and what the manifest says of each."""

from collections.abc import Callable, Mapping
from typing import Any

from attnprobe.core.metrics import declared, warn_of_undeclared
from attnprobe.models.performance import PERFORMANCE, TRAINING
from attnprobe.probes.base import ProbeRunner
from attnprobe.results.directory import table_file
from attnprobe.results.files import records_of
from attnprobe.results.table import Rows
from attnprobe.results.writer import OwnRunDirectory


def write_tables(
    directory: OwnRunDirectory,
    runner: ProbeRunner,
    rows: Mapping[str, Rows],
    identity: Callable[[str], dict[str, Any]],
    settings: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Write one table per probe.

    Args:
        directory: where.
        runner: the probes and importances that measured.
        rows: what they measured, by probe.
        identity: probe → the identifying columns of its table.
        settings: those of the probes (`probe`) and the importances (`importance`), by name; either may be left out.

    Returns:
        what the manifest says of each table, by probe.
    """
    of_importance, of_probe = settings.get("importance", {}), settings.get("probe", {})
    told_of = {
        name: one.facts
        | {"name": name, "settings": of_importance.get(name), "files": records_of(one.files())}
        | {"seconds": round(runner.importance_seconds.get(name, 0.0), 3)}
        for name, one in runner.importances.items()
    }
    filed = {probe.name: {probe.label(one): told_of[one] for one in probe.uses} for probe in runner.probes}
    metrics = {"training": TRAINING, "performance": PERFORMANCE} | {one.name: one.metrics for one in runner.probes}
    if runner.scored:
        metrics = {name: tuple(one.of_scores for one in own) for name, own in metrics.items()}
    tables = {}
    for name, collected in rows.items():
        written = collected.write(directory.place(table_file(name)), identity(name))
        warn_of_undeclared(name, written.extremes, metrics[name])
        declarations = {key: declared(key, metrics[name]) for key in written.extremes}
        tables[name] = {
            "rows": written.rows,
            "undefined": written.undefined,
            "metrics": {key: one.facts for key, one in declarations.items() if one is not None},
            "settings": of_probe.get(name),
            "seconds": round(runner.seconds.get(name, 0.0), 3),
            "notes": runner.notes.get(name, {}),
            "importances": filed.get(name, {}),
        }
    return tables
