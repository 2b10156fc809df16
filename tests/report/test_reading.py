import pandas as pd
import pytest
from matplotlib.figure import Figure

from attnprobe.report.reading import Drawing, Tabulation


def draw(numbers, examples):
    return Figure()


def build(numbers):
    return pd.DataFrame()


@pytest.mark.parametrize(
    "ignored", [{"words": True}, {"optional": ()}, {"optional": (("a", "b"),)}, {"examples": lambda results: [0]}]
)
def test_a_drawing_by_metric_refuses_what_it_would_ignore(ignored):
    Drawing("curve", draw, (("a", "b"),), **ignored)
    Drawing("curve", draw, (("a", "b"),), by_metric=True)
    with pytest.raises(ValueError, match="Drawing curve: by_metric=True is given no rows"):
        Drawing("curve", draw, (("a", "b"),), by_metric=True, **ignored)


@pytest.mark.parametrize("ignored", [{"metrics": ("a",)}, {"parts": lambda outline: [("a",)]}])
def test_a_tabulation_by_metric_refuses_what_it_would_ignore(ignored):
    Tabulation("pairs", "What is counted.", build, **ignored)
    Tabulation("pairs", "What is counted.", build, by_metric=True)
    with pytest.raises(ValueError, match="Tabulation pairs: by_metric=True is given no rows"):
        Tabulation("pairs", "What is counted.", build, by_metric=True, **ignored)
