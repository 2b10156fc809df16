"""Tables of numbers by hand, for the readings of probes."""

import matplotlib as mpl
import numpy as np

from attnprobe.evidence.reading import readings
from attnprobe.plots.style import paper_style
from attnprobe.results.table import Rows

NAN = float("nan")


def table(probe, metrics, *, data="yelp", model="hanconv"):
    """One run's long table: metric → the number of each example."""
    rows = Rows()
    for metric, values in metrics.items():
        rows.add(metric, np.arange(len(values)), np.array(values, float))
    identity = {"run_id": model, "experiment": "serrano", "data": data, "model": model, "seed": 0, "split": "test"}
    return rows.table(identity | {"probe": probe}).to_pandas()


def erased(length, **counts):
    """Counts per ranking, NaN for never, of examples of `length` items."""
    metrics = {"content_length": length, "never_flips": np.isnan(counts["optimal"])}
    for name, count in counts.items():
        metrics[f"removed_count_{name}"] = count
        metrics[f"removed_fraction_{name}"] = np.array(count) / np.array(length)
        metrics[f"regret_{name}"] = np.array(count) - np.array(counts["optimal"])
    return metrics


def draw(drawing, results):
    """One figure in the house style."""
    with paper_style():
        return drawing.draw(results, None)


def drawn(probe, results):
    """The words in every figure of a probe."""
    for drawing in readings()[probe].drawings:
        figure = draw(drawing, results)
        figure.canvas.draw()
        yield [text.get_text() for text in figure.findobj(mpl.text.Text)]
