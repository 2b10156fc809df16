"""What a long probe has measured so far, batch by batch, on the disk: a run that was killed goes on from there.

A part is read again only for the very same examples, settings and weights; what cannot be read is measured again.
"""

import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from attnprobe.importance.base import Note
from attnprobe.results.files import write_atomically
from attnprobe.results.fingerprint import fingerprint

COMBINED: Mapping[str, Callable[[float, float], float]] = {"add": operator.add, "max": max}
"""How notes of two batches become one, by the function's name."""


class Numbers(NamedTuple):
    """A measurement as numpy arrays in float64; see `attnprobe.probes.base.Measurement`."""

    metric: str
    value: np.ndarray
    step: np.ndarray | None
    site: str


Part = tuple[slice, Sequence[Numbers | Note]]
"""What was measured of some rows of a batch."""


@dataclass(frozen=True)
class Parts:
    """A folder of parts.

    Attributes:
        folder: of the run.
        mark: whatever decides the numbers besides the examples, such as settings and weights.
    """

    folder: Path
    mark: Any

    def path(self, probe: str, example_ids: Sequence[int]) -> Path:
        """The file of one batch."""
        return self.folder / f"{probe}-{fingerprint([self.mark, probe, list(example_ids)])}.part"

    def read(self, probe: str, example_ids: Sequence[int]) -> list[Part] | None:
        """What was measured of this batch; None where it was not, or cannot be read."""
        path = self.path(probe, example_ids)
        if not path.exists():
            return None
        try:
            with safe_open(path, "numpy") as file:
                listed = json.loads(file.metadata()["parts"])
                return [(slice(*rows), [taken(file, one) for one in several]) for rows, several in listed]
        except (SafetensorError, OSError, KeyError, ValueError, TypeError):
            return None

    def write(self, probe: str, example_ids: Sequence[int], parts: Sequence[Part]) -> None:
        """Keep what was measured of a batch."""
        tensors: dict[str, np.ndarray] = {}
        listed = []
        for rows, several in parts:
            entries: list[dict[str, Any]] = []
            for one in several:
                if isinstance(one, Note):
                    entries.append({"note": one.name, "value": one.value, "combine": one.combine.__name__})
                    continue
                names = {}
                for side, array in {"value": one.value, "step": one.step}.items():
                    if array is not None:
                        names[side] = f"{len(tensors)}"
                        tensors[names[side]] = np.ascontiguousarray(array)
                entries.append({"metric": one.metric, "site": one.site, **names})
            listed.append(([rows.start, rows.stop], entries))
        content = {"parts": json.dumps(listed)}
        write_atomically(self.path(probe, example_ids), lambda path: save_file(tensors, path, content))


def taken(file: Any, entry: Mapping[str, Any]) -> Numbers | Note:
    """One measurement, or one note, as it was."""
    if "note" in entry:
        return Note(str(entry["note"]), float(entry["value"]), COMBINED[entry["combine"]])
    step = file.get_tensor(entry["step"]) if "step" in entry else None
    return Numbers(str(entry["metric"]), file.get_tensor(entry["value"]), step, str(entry["site"]))
