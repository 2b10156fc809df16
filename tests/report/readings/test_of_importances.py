"""Tables and headlines of readings that have a line for every importance, by hand."""

import numpy as np
import pytest

from attnprobe.report.reading import readings
from attnprobe.report.readings import faithfulness, identifiable, novelty
from attnprobe.results.rows import Rows

NAN = float("nan")


def table(probe, metrics):
    rows = Rows()
    for metric, values in metrics.items():
        rows.add(metric, np.arange(len(values)), np.array(values, float))
    identity = {"run_id": "r", "experiment": "e", "data": "sst", "model": "lstm", "seed": 0, "split": "test"}
    return rows.table(identity | {"probe": probe}).to_pandas()


def test_shares_of_unlike_texts():
    results = table(
        "novelty",
        {
            "novelty_p": [0.01, 0.5, 0.9, 0.04],
            "novelty_p_without_attention_by_mask": [0.01, 0.02, 0.6, NAN],
            "novelty_p_alone_attention_by_mask": [0.2, 0.3, 0.4, 0.5],
        },
    )
    (line,) = novelty.rows(results).to_dict("records")
    assert (line["importance"], line["operator"], line["n"]) == ("attention", "mask", 4)
    assert line["unlike, whole texts"] == 0.5
    assert line["unlike, without them"] == pytest.approx(2 / 3)
    assert line["unlike, alone"] == 0
    assert line["p, alone"] == pytest.approx(0.35)
    assert np.isnan(novelty.unlike(np.array([NAN])))
    assert novelty.rows(table("novelty", {"novelty_p": [0.5]})).empty


def test_attentions_that_are_unique_by_length():
    metrics = {name: [0.1, 0.2, 0.3, 0.4] for name in identifiable.METRICS}
    metrics |= {"parts": [16, 17, 32, 600], "unique": [1, 1, 0, 0], "top_low": [0.1, 0.2, 0.4, 0.0]}
    found = identifiable.table(table("identifiable", metrics)).set_index("parts")
    assert list(found.index) == ["1 to 16", "17 to 32", "over 512", "all"]
    assert found["n"].tolist() == [1, 2, 1, 4]
    assert found["unique"].tolist() == [1, 0.5, 0, 0.5]
    assert found["its least weight"].tolist() == pytest.approx([0.1, 0.3, 0.0, 0.175])


def test_every_importance_and_operator_has_its_headlines():
    kinds = ("comprehensiveness", "sufficiency", "deletion_area", "insertion_area", "flip_share")
    metrics = {f"{kind}_{name}_by_delete": [0.2, 0.4] for kind in kinds for name in ("lime", "attention")}
    results = table("faithfulness", metrics | {"completeness_gap_lime": [0.0, 0.1]})
    results.attrs["importances"] = {"faithfulness": {name: {"title": name.upper()} for name in ("lime", "attention")}}
    assert faithfulness.measured(results) == [("lime", "delete"), ("attention", "delete")]
    headlines = {one.metric: one.title for one in faithfulness.headlines(results)}
    assert headlines["comprehensiveness_lime_by_delete"] == "comprehensiveness (AOPC): LIME, delete"
    assert headlines["completeness_gap_lime"] == "completeness gap: LIME"
    assert set(headlines) == {*(one for one in metrics if "area" not in one), "completeness_gap_lime"}
    lines = faithfulness.rows(results).set_index("importance")
    assert lines.loc["ATTENTION", "comprehensiveness"] == pytest.approx(0.3)
    (figure,) = (drawing.draw(results, None) for drawing in readings()["faithfulness"].drawings)
    assert len(figure.axes) == 1
