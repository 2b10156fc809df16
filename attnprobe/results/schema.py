"""The columns of the long tables."""

import pyarrow as pa

WHOLE_SPLIT = -1
"""`example_id` of a number that is about the whole split (accuracy, a count) and not about one example."""

IDENTITY = ("run_id", "experiment", "data", "model", "seed", "split", "probe")
COLUMNS = (*IDENTITY, "metric", "example_id", "step", "value")
SCHEMA = pa.schema(
    [
        *[pa.field(name, pa.dictionary(pa.int32(), pa.string())) for name in ("run_id", "experiment", "data", "model")],
        pa.field("seed", pa.int64()),
        *[pa.field(name, pa.dictionary(pa.int32(), pa.string())) for name in ("split", "probe", "metric")],
        pa.field("example_id", pa.int64()),
        pa.field("step", pa.float64()),
        pa.field("value", pa.float64()),
    ]
)
SITE = "site"
SITED = SCHEMA.append(pa.field(SITE, pa.dictionary(pa.int32(), pa.string())))
"""With a last column that says which of a model's attentions a number is about (`attnprobe.models.base.Model.sites`): only
tables of several sites are written with it, and where it is absent every number is about the model's own."""
