import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from attnprobe.evidence.evidence import Evidence
from attnprobe.findings.studies.criteria.figures import (
    AdversaryCurve,
    AttentionDistances,
    SeedScores,
)
from attnprobe.plots.style import paper_style
from attnprobe.report.studies.retraining import (
    draw_adversary_curve,
    draw_attention_distances,
    draw_seed_scores,
)
from attnprobe.results.directory import PIPELINE
from attnprobe.results.files import write_json
from tests.report.test_figure_bounds import NAMES, problems


@pytest.mark.parametrize("classes", range(2, 11))
def test_nothing_of_the_distances_is_cut_off(classes, tmp_path):
    generator = np.random.default_rng(classes)
    texts = pd.DataFrame(
        {
            "seeds": generator.random(80) * 0.3,
            "found_jsd": generator.random(80) * 0.6,
            "max_attention": generator.random(80),
            "optimum_jsd": 0.6 + generator.random(80) * 0.09,
            "predicted_class": generator.integers(0, classes, 80),
        }
    )
    write_json({"classes": NAMES[:classes]}, tmp_path / PIPELINE)
    numbers = AttentionDistances(
        "seeds",
        "Distances.",
        data="customer reviews of the year 2026",
        texts=texts,
        base=tmp_path,
        optimum="adversary, best known",
    )
    with paper_style():
        figure = draw_attention_distances(numbers)
    assert problems(figure) == []
    words = [text.get_text() for text in figure.findobj(mpl.text.Text)]
    assert any("hardware and software" in text for text in words) == (classes == 2)


@pytest.mark.parametrize("f1", [[0.99, 0.91], [0.0, 0.02, 0.0], [0.5], [1.0, 1.0]])
def test_nothing_of_the_f1_figure_is_cut_off(f1):
    models = ("attention of the trained adversary", "uniform attention")
    mean = np.mean(f1)
    numbers = SeedScores(
        "uniform",
        "F1.",
        data="sst",
        f1={model: np.array(f1) for model in models},
        mean=dict.fromkeys(models, Evidence(mean, max(0, mean - 0.1), min(1, mean + 0.1), 100)),
        published=dict.fromkeys(models, 0.87),
    )
    with paper_style():
        figure = draw_seed_scores(numbers)
    assert problems(figure) == []


def test_the_labels_of_the_curve_lie_beside_the_bars_of_their_points():
    trained = pd.DataFrame(
        {
            "lambda": [0, 0.001, 0.01, 0.1, 1],
            "TVD": [0.02, 0.05, 0.2, 0.4, 0.6],
            "JSD": [0.1, 0.3, 0.5, 0.6, 0.65],
        }
    )
    for name in ("TVD", "JSD"):
        trained[f"{name} low"] = trained[name] - 0.02
        trained[f"{name} high"] = trained[name] + 0.02
    numbers = AdversaryCurve(
        "adversary",
        "The curve.",
        data="sst",
        trained=trained,
        seeds=pd.DataFrame({"tvd": [0.1, 0.1], "jsd": [0.1, 0.2]}),
        single=pd.Series(
            {"found_tvd": 0.01, "found_jsd": 0.4, "optimum_tvd": 0.01, "optimum_jsd": 0.6}
        ),
        published=pd.DataFrame({"TVD": [0.03], "JSD": [0.62]}),
        optimum="exact optimum",
    )
    with paper_style():
        figure = draw_adversary_curve(numbers)
    assert problems(figure) == []
    axes = figure.axes[0]
    labels = [text.get_window_extent() for text in axes.texts]
    assert len(labels) == 5
    segments = [segment for bars in axes.collections for segment in bars.get_segments()]
    for segment in segments:
        ends = axes.transData.transform(segment)
        bar = mpl.transforms.Bbox([ends.min(0), ends.max(0) + 0.1])
        assert not any(label.overlaps(bar) for label in labels)
