"""The file of the page's playground: texts with all that a prediction is computed from.

One row per text; lists run over the positions that attention may be given to, in order.
`position_logits` has all classes of the first position, then those of the second, and so on: the
logits under any attention a are Σ_t a_t z_t. No words are in it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

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
"""`farthest`: the attention with the largest JSD (`jsd`, nats, at most `upper_bound`) among those
whose prediction is within TVD `epsilon`; `is_exact`: nothing is farther. `flipping`: the fewest
positions whose erasure changes the decision to `flips_to`, −1 where it is proved that no erasure
does."""


def write_playground(rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    """Write the texts, by example; there may be none."""
    write_table(pa.Table.from_pylist(sorted(rows, key=lambda row: row["example_id"]), SCHEMA), path)


def read_playground(run: RunDirectory) -> list[dict[str, Any]]:
    """The texts of a run, by example; none where it has no such file, or its decoder is not linear.

    Raises:
        DamagedRun: if the file is not as it was written.
    """
    if PLAYGROUND not in run.manifest()["files"]:
        return []
    return pq.read_table(run.file(PLAYGROUND)).to_pylist()
