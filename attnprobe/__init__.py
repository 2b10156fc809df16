"""attnprobe: may I read this classifier's attention as an explanation?

```python
import attnprobe

# the numbers of all finished runs below a directory, as a DataFrame
attnprobe.read_results("runs")
# tokens, attention, prediction of every test text
attnprobe.read_examples("runs/sst/lstm_…")
# a trained classifier, ready for new text
attnprobe.load_run("runs/sst/lstm_…")
# a model that was trained elsewhere
attnprobe.audit_tensors(attention, hidden=…)
# probes on your own Lightning trainer and module (docs/lightning.md)
attnprobe.TextDataModule, attnprobe.Staged, attnprobe.PretrainedClassifier, attnprobe.WriteRun
# divergences, rank correlations and exact solvers, on plain tensors
attnprobe.measures, attnprobe.exact
```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnprobe import exact, measures
    from attnprobe.core.batch import Batch, Outputs, Task
    from attnprobe.core.errors import UserError
    from attnprobe.core.readout import Readout
    from attnprobe.data.module import TextDataModule
    from attnprobe.models.pretrained.model import PretrainedClassifier
    from attnprobe.models.staged import Staged
    from attnprobe.outside import Audit, audit_model, audit_tensors
    from attnprobe.results.table import read_examples, read_results
    from attnprobe.runs.load import TrainedRun, load_run
    from attnprobe.runs.write_run import WriteRun

__version__ = "0.1.0"

__all__ = [
    "Audit",
    "Batch",
    "Outputs",
    "PretrainedClassifier",
    "Readout",
    "Staged",
    "Task",
    "TextDataModule",
    "TrainedRun",
    "UserError",
    "WriteRun",
    "audit_model",
    "audit_tensors",
    "exact",
    "load_run",
    "measures",
    "read_examples",
    "read_results",
]

HOMES = {
    "attnprobe.outside": ("Audit", "audit_model", "audit_tensors"),
    "attnprobe.core.batch": ("Batch", "Outputs", "Task"),
    "attnprobe.core.errors": ("UserError",),
    "attnprobe.core.readout": ("Readout",),
    "attnprobe.data.module": ("TextDataModule",),
    "attnprobe.models.pretrained.model": ("PretrainedClassifier",),
    "attnprobe.models.staged": ("Staged",),
    "attnprobe.results.table": ("read_examples", "read_results"),
    "attnprobe.runs.load": ("TrainedRun", "load_run"),
    "attnprobe.runs.write_run": ("WriteRun",),
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used.

    torch takes seconds, which --help and the report need not wait for.
    """
    if name in ("exact", "measures"):
        return import_module(f"attnprobe.{name}")
    for home, names in HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'attnprobe' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
