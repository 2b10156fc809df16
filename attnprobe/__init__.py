"""attnprobe: may I read this classifier's attention as an explanation?

import attnprobe

attnprobe.read_results("runs")             # the numbers of all finished runs below a directory, as a DataFrame
attnprobe.load_run("runs/sst/lstm_…")      # a trained classifier, ready for new text
attnprobe.measures, attnprobe.exact        # divergences, rank correlations and exact solvers, on plain tensors
"""

from attnprobe import exact, measures
from attnprobe.batch import Batch, Outputs, Readout, Task
from attnprobe.errors import UserError
from attnprobe.loading import TrainedRun, load_run
from attnprobe.results import read_examples, read_results

__all__ = [
    "Batch",
    "Outputs",
    "Readout",
    "Task",
    "TrainedRun",
    "UserError",
    "exact",
    "load_run",
    "measures",
    "read_examples",
    "read_results",
]
