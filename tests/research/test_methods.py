import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.utils import instantiate

from attnprobe.findings.studies.base import Done, read_study
from attnprobe.report.publish import publish_study
from attnprobe.results.table import read_results
from attnprobe.runs.studies import carry_out_study
from research.methods import MethodScores, draw_method_scores, overall
from tests.small_runs import composed

TINY = (
    "+experiment=methods",
    "study.encoders=[average]",
    "study.data=[token]",
    "study.seeds=[0,1]",
    "importances=[attention,gradient,random]",
    "study.settings=['data.source.train_size=300','data.source.validation_size=60','data.source.test_size=60',"
    "'data.embedding_size=16','training.epochs=6','training.recipe.optimizer.lr=0.03','trainer.accelerator=cpu']",
)


def test_methods_are_ranked_by_the_words_that_decide(tmp_path, no_pictures):
    directory = carry_out_study([*TINY, f"output={tmp_path}"], lambda changes: composed(*changes))
    reading = read_study(directory)
    table = next(iter(reading.tables.values())).set_index("method")
    assert table[["data sets", "models"]].to_numpy().tolist() == [[1, 2]] * 3
    assert table.index[-1] == "random"
    assert table.loc["gradient", "auprc"] > 0.9 > 0.5 > table.loc["random", "auprc"]
    low, high = table.loc["random", ["auprc low", "auprc high"]]
    assert low < table.loc["random", "auprc"] < high
    assert (table["ms per text"] >= 0).all()
    correct = 0
    for member in json.loads((directory / "study.json").read_text())["members"]:
        rows = read_results(directory / member["directory"], probe="known_answer")
        correct += rows.loc[rows["metric"] == "correct", "value"].sum()
    by_data = reading.tables[
        "AUPRC and precision at k of every method, by data set and encoder"
    ].set_index("method")
    # each text without its word is as one of the other class: this model decides all alike
    assert 0 < by_data.loc["gradient", "texts"] < correct
    publish_study(directory)
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "Which method finds the words that decide" in page
    sentence = f"“{table.index[0]}” finds the words that decide best: average precision "
    assert f'<a href="#studies">{sentence}' in page


def test_a_data_set_counts_once_however_many_models_know_it():
    """Of the hard data one model of two is left: the mean is that of 0.9 and 0.4, not of three
    models."""
    models = pd.DataFrame(
        [
            {
                "data": data,
                "encoder": "lstm",
                "method": "attention",
                "seed": seed,
                "auprc": value,
                "precision": value,
                "ms": 2.0,
            }
            for data, seed, value in (("easy", 0, 0.8), ("easy", 1, 1.0), ("hard", 1, 0.4))
        ]
    )
    (row,) = overall(models).to_dict("records")
    assert (row["data sets"], row["models"], row["auprc"]) == (2, 3, pytest.approx(0.65))
    assert np.isnan(row["auprc low"])  # one model of the hard data tells no spread


def test_each_number_of_the_figure_stands_above_its_encoder():
    """Data sets have not all encoders, and the panels share an axis."""
    cells = [
        ("token", "average", 0.11),
        ("token", "lstm", 0.22),
        ("pair", "transformer", 0.33),
        ("pair", "lstm", 0.44),
    ]
    table = pd.DataFrame(
        [
            {"data": data, "encoder": encoder, "method": "attention", "auprc": value}
            for data, encoder, value in cells
        ]
    )
    figure = draw_method_scores(MethodScores("methods", "", table))
    figure.canvas.draw()
    names = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    shown = {
        (panel.get_title(loc="left"), names[text.xy[0]], float(text.get_text()))
        for panel in figure.axes
        for text in panel.texts
    }
    assert shown == set(cells)


@pytest.mark.parametrize("experiment", ["methods", "sanity"])
def test_every_method_of_the_experiment_reaches_its_runs(experiment):
    """The settings of an experiment are not the members': what these need goes through the
    study."""
    config = composed(f"+experiment={experiment}")
    study = instantiate(config.study)
    assert list(study.importances) == list(config.importances)
    done: list[Done] = []
    stages = study.stages(0, "lstm", done)
    members = next(stages)
    if experiment == "sanity":
        done.append(Done(members[0], Path("twin")))
        members = next(stages)
    of_layers = {
        "rollout",
        "attention_flow",
        "value_zeroing",
        "vector_norm",
        "vector_norm_residual",
        "alti",
        "decompx",
    }
    for member in members:
        has_layers = experiment == "sanity" or member.role == "transformer"
        expected = [name for name in config.importances if has_layers or name not in of_layers]
        assert f"importances=[{','.join(expected)}]" in member.overrides
