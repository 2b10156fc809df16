"""The file of the page's playground: a few texts with all that another attention's prediction can be computed from.

One row per text; lists run over the positions that attention may be given to, in order. `position_logits` has all classes of
the first position, then those of the second, and so on: the logits under any attention a are Σ_t a_t z_t. No words are in it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.results.checksums import damaged
from attnprobe.results.directory import PLAYGROUND, RunDirectory
from attnprobe.results.files import write_table

SCHEMA = pa.schema(
    {
        "example_id": pa.int64(),
        "attention": pa.list_(pa.float64()),
        "position_logits": pa.list_(pa.float64()),
        "epsilon": pa.float64(),
        "farthest": pa.list_(pa.float64()),
        "jsd": pa.float64(),
        "upper_bound": pa.float64(),
        "is_exact": pa.bool_(),
        "flipping": pa.list_(pa.bool_()),
        "flips_to": pa.int64(),
    }
)
"""`farthest`: the attention with the largest JSD (`jsd`, nats, at most `upper_bound`) among those whose prediction is within
TVD `epsilon`; `is_exact`: nothing is farther. `flipping`: the fewest positions whose erasure changes the decision to
`flips_to`, −1 where it is proved that no erasure does."""


SUM_TOLERANCE = 1e-6
"""By how much the weights of a text may miss 1."""


def write_playground(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write the texts, by example; there may be none."""
    write_table(pa.Table.from_pylist(sorted(rows, key=lambda row: row["example_id"]), SCHEMA), path)


def read_playground(run: RunDirectory) -> list[dict[str, Any]]:
    """The texts of a run, by example; none where it has no such file, or its decoder is not linear.

    Raises:
        DamagedRun: the file is not as it was written, or holds what nothing of ours writes.
    """
    if PLAYGROUND not in run.manifest()["files"]:
        return []
    path = run.file(PLAYGROUND)
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (pa.ArrowException, OSError) as error:
        raise damaged(path, " ".join(str(error).split())[:200]) from None
    if not table.schema.equals(SCHEMA):
        raise damaged(path, "its columns are not those of a playground")
    rows: list[dict[str, Any]] = table.to_pylist()
    classes: set[int] = set()
    for row in rows:
        if not fits(row):
            raise damaged(
                path, f"the numbers of example {row['example_id']} are not those of an attention and its logits"
            )
        classes.add(len(row["position_logits"]) // len(row["attention"]))
    if len(classes) > 1 or len({row["example_id"] for row in rows}) < len(rows):
        raise damaged(path, "its texts have different classes, or one is there twice")
    return rows


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a text's lists belong together: as many weights and marks as positions, the logits of two classes or more for
    each, all of it finite, and weights that sum to 1."""
    if any(value is None or (isinstance(value, list) and None in value) for value in row.values()):
        return False
    own, farthest, logits = (np.array(row[name], np.float64) for name in ("attention", "farthest", "position_logits"))
    classes, rest = divmod(len(logits), max(1, len(own)))
    if not len(own) == len(farthest) == len(row["flipping"]) or not len(own) or rest or classes < 2:
        return False
    numbers = np.concatenate([own, farthest, logits, [row[name] for name in ("epsilon", "jsd", "upper_bound")]])
    weights = np.stack([own, farthest])
    sums = np.abs(weights.sum(-1) - 1) <= SUM_TOLERANCE
    return bool(np.isfinite(numbers).all() and (weights >= 0).all() and sums.all() and -1 <= row["flips_to"] < classes)
