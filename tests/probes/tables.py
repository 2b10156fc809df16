"""What a probe measures on a toy, and tables of numbers by hand for its reading."""

import matplotlib as mpl
import numpy as np
import torch

from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Subject
from attnprobe.plots.style import paper_style
from attnprobe.probes.base import Measurement
from attnprobe.readings.registry import readings
from attnprobe.results.table import Rows
from tests.toys import toy_batch, toy_readout

NAN = float("nan")


def subject_of(classifier, batch, *words_and_importances):
    """A batch as this classifier reads it."""
    return Subject(classifier, batch, *toy_readout(classifier, batch), *words_and_importances)


def marked(lengths, **facts):
    """Texts with two words as their reason, and other words in their places as the
    contradiction."""
    batch = toy_batch(lengths, **facts)
    batch.rationale = torch.zeros_like(batch.content)
    batch.rationale[:, [2, 4]] = batch.content[:, [2, 4]]
    other_words = (batch.ids + 5) % 20 + 4
    contradiction = torch.where(batch.rationale, other_words, batch.ids)
    batch.counterfactual = contradiction * batch.content
    return batch


def measured(probe, subject):
    """Metric → what the probe measures on a subject, or on a readout."""
    results = probe.measure(subject, Draws(0, probe.name))
    return {result.metric: result for result in results if isinstance(result, Measurement)}


def values(probe, subject):
    """Metric → its values."""
    return {name: result.value for name, result in measured(probe, subject).items()}


def table(probe, metrics, *, data="yelp", model="hanconv"):
    """One run's long table: metric → the number of each example."""
    rows = Rows()
    for metric, values in metrics.items():
        rows.add(metric, np.arange(len(values)), np.asarray(values, float))
    identity = {
        "run_id": model,
        "experiment": "serrano",
        "data": data,
        "model": model,
        "seed": 0,
        "split": "test",
    }
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
