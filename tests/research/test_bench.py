"""The bench's data, made for one small model, and asked with importances and by captum alone."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe.cli.bench import bench as bench_command
from attnprobe.core.errors import UserError
from attnprobe.findings.bench.folder import BenchFolder
from attnprobe.findings.bench.judging import judged
from attnprobe.findings.bench.rates import RATES
from attnprobe.findings.bench.scores import FileScores
from attnprobe.models.controls import FirstAttention, RationaleAttention
from attnprobe.results.table import read_results
from attnprobe.runs.bench import ImportanceScores, sources_of, subject_of, training_words
from attnprobe.runs.composition import composed, composing
from attnprobe.runs.run import run
from research.bench.__main__ import grid_of, main, parser, rules_of
from research.bench.baselines import (
    WAYS,
    Case,
    keep_drop,
    over_resampled_rules,
    rows_of_model,
    says_yes,
    table_of_ways,
    ways_as_markdown,
    yes_rate,
)
from research.bench.ranking import as_markdown, rates_by_encoder
from research.grammar import RuleSpec
from research.words.cells import Cell
from research.words.truth import model_of_run

PAGE = Path(__file__).parents[2] / "docs" / "bench.md"
COMMAND = ["--rules", "token", "--encoders", "lstm", "--texts", "30", "--most-passes", "400"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "bench"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["bench", "make", str(path), *COMMAND])
        main()
    return path


@pytest.fixture
def bench(folder):
    return BenchFolder.open(folder)


def test_a_model_is_stored_with_its_texts_and_its_run(bench):
    (model,) = bench.models()
    assert model.name == "token--lstm--learned--0"
    assert model.accuracy >= 0.9
    assert model.follows >= 0.9
    texts = bench.texts(model)
    assert len(texts) == model.texts == 30
    for text in texts:
        assert text.attention.sum() == pytest.approx(1, abs=1e-5)
        (place,) = np.flatnonzero(text.deciding)
        assert text.words[place] == f"class{text.label}"


def test_the_share_of_attention_is_that_of_a_run_with_the_probe(bench, tmp_path):
    """The bench's passes are the product's: a user's run says the same number."""
    (model,) = bench.models()
    cell = Cell(RuleSpec("token"), "lstm", "learned", 0, "run")
    settings = [*cell.command_line(tmp_path), "data.source.test_size=30"]
    with composing():
        table = read_results(run(composed([*settings, "probe.swaps.most_passes=400"])), "swaps")
    of_run = table[table["metric"] == "swap_excess"].sort_values("example_id")["value"]
    texts = bench.texts(model)
    of_bench = []
    for text in texts:
        shares = text.sets.effects().shares
        of_bench.append(float(torch.from_numpy(text.attention) @ shares - shares.mean()))
    assert of_bench == pytest.approx(of_run.tolist(), abs=5e-3)


def test_what_is_there_is_not_made_again(folder, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench", "make", str(folder), *COMMAND])
    main()
    assert capsys.readouterr().out == ""


def test_an_importance_is_computed_on_the_models_own_texts(bench):
    (model,) = bench.models()
    texts = bench.texts(model)
    sources = sources_of(["leave_one_out", "attention"], bench, [model])
    scores = sources["leave_one_out"](model, texts)
    assert [len(values) for values in scores] == [len(text.words) for text in texts]
    rows = list(judged(bench, [model], sources))
    assert rows[0]["auroc"] > 0.95


def test_chance_has_no_yes_on_a_trained_model(bench):
    (model,) = bench.models()
    (row,) = judged(bench, [model], sources_of(["random"], bench, [model]))
    assert abs(row["auroc"] - 0.5) < 0.15  # 30 texts
    assert row["answer"] != "yes"


def test_a_method_of_layers_is_refused_for_an_lstm(bench):
    (model,) = bench.models()
    texts = bench.texts(model)
    assert not ImportanceScores(bench).is_defined("rollout", model, texts)
    with pytest.raises(UserError, match=r"rollout is not defined for .*lstm.*: leave .*--models"):
        sources_of(["rollout"], bench, [model])["rollout"](model, texts)


def test_an_importance_that_reads_a_runs_own_file_is_no_source(bench):
    with pytest.raises(UserError, match="file: expected a file of scores"):
        sources_of(["file"], bench, bench.models())


@pytest.fixture
def counted(bench):
    """The model of the bench, its texts, and importances that count its training texts."""
    (model,) = bench.models()
    return model, bench.texts(model), sources_of(["idf", "log_odds"], bench, [model])


def test_the_training_texts_are_counted_as_they_were_for_the_training(bench, counted):
    """Plain counts of the texts that the model's own settings make."""
    model, texts, sources = counted
    _, data = model_of_run(bench.run(model.name))
    train = data.splits["train"]
    training_texts = [set(train.tokens(number)) for number in range(len(train))]
    for text, scores in zip(texts, sources["idf"](model, texts), strict=True):
        for word, score in zip(text.words, scores, strict=True):
            holding = sum(word in words for words in training_texts)
            expected = np.log((1 + len(training_texts)) / (1 + holding)) + 1
            assert score == pytest.approx(expected)


def test_counts_of_the_training_texts_know_the_one_word_that_decides(bench, counted):
    model, _, sources = counted
    idf, log_odds = judged(bench, [model], sources)
    assert idf["scores"] == "idf"
    assert log_odds["scores"] == "log_odds"
    assert log_odds["auroc"] > 0.95


def test_training_texts_that_are_others_today_are_not_counted(bench):
    (model,) = bench.models()
    run = bench.run(model.name)
    subject = replace(subject_of(run, bench.texts(model)), words=["another"])
    with pytest.raises(UserError, match=r"importance idf .* other words .*: expected the bench"):
        training_words("idf", run, subject)


def test_the_script_of_the_page_scores_by_captum_alone(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (script,) = re.findall(
        r"```python\n(from dataclasses.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert len(script.splitlines()) <= 25
    exec(compile(script, "script", "exec"), {})
    bench = BenchFolder.open(folder)
    models = bench.models()
    scores = FileScores.read("scores.parquet", bench, models)
    (row,) = judged(bench, models, {"captum": scores})
    assert row["auroc"] > 0.9


def test_the_command_prints_and_ranks(folder, capsys):
    bench_command(["gradient", "truth", "random", "--data", str(folder)])
    printed = capsys.readouterr().out
    assert printed.index("truth ") < printed.index("random")


def test_the_second_half_has_other_rules():
    command = ["make", "bench", "--drawn", "12", "--commit", "abc", "--half"]
    halves = {}
    for half in ("first", "second"):
        named_half, rules = rules_of(parser().parse_args([*command, half]))
        assert named_half == half
        halves[half] = {rule.name for rule in rules}
    assert not halves["first"] & halves["second"]


@pytest.mark.parametrize("option", [["--encoders", "gru"], ["--attentions", "best"]])
def test_unknown_parts_are_named(option):
    options = parser().parse_args(["make", "bench", *option])
    with pytest.raises(UserError, match=rf"{option[1]}: expected"):
        list(grid_of(options, [RuleSpec("token")]).cells())


def toy_rows():
    """Two encoders, one method of which is for transformers alone."""
    rows = []
    for rule in ("a", "b", "c"):
        for encoder in ("lstm", "transformer"):
            for method in ("attention", "truth", *(["rollout"] * (encoder == "transformer"))):
                rows.append(
                    {
                        "scores": method,
                        "model": f"{rule}-{encoder}",
                        "rule": rule,
                        "kind": "token",
                        "encoder": encoder,
                        "texts": 25.0 if method == "rollout" else 100.0,
                        "auroc": 1.0 if method == "truth" else 0.7,
                        "average_precision": 0.5,
                        "truth": 0.5,
                        "share": 0.5,
                        "answer": "yes" if method == "truth" else "open",
                    }
                )
    return pd.DataFrame(rows)


def test_a_method_of_layers_is_ranked_after_those_of_all_models():
    rates = rates_by_encoder(toy_rows())
    assert set(rates[rates["scores"] == "rollout"]["encoder"]) == {"transformer"}
    lines = as_markdown(rates).splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == [
        "| *the truth itself*",
        "| `attention`",
        "| `rollout`, 25 texts",
    ]
    # of fewer texts there is no rate of yes
    yes = [line.split(" | ")[-1] for line in lines[2:]]
    assert yes == ["100 % [29, 100] |", "0 % [0, 71] |", "– |"]


def test_a_method_that_some_models_refuse_has_no_rate_of_their_encoder():
    rows = toy_rows()
    refused = (rows["scores"] == "rollout") & (rows["model"] == "a-transformer")
    rates = rates_by_encoder(rows[~refused])
    assert "rollout" not in set(rates["scores"])
    assert set(rates["encoder"]) == {"all", "lstm", "transformer"}


def test_the_docs_are_of_the_shipped_rates():
    page = (PAGE.parent / "results" / "attributions.md").read_text(encoding="utf-8")
    part = page.partition("<!-- bench -->\n")[2].partition("<!-- end of bench -->")[0]
    assert part.strip() == as_markdown(pd.read_csv(RATES)).strip()


@pytest.mark.slow
def test_every_way_tells_the_truth_from_a_wrong_attention(bench):
    (model,) = bench.models()
    rows = pd.DataFrame(rows_of_model(Case.of(bench, model)))
    standings = rows.set_index("attention")["standing"]
    assert standings["right_95"] == "right"
    assert {standings[name] for name in ("first", "last", "random_place")} == {"wrong"}
    table = table_of_ways(rows).set_index("way")
    for way in ("share", "keep_drop", "comprehensiveness", "sufficiency"):
        assert table.loc[WAYS[way], "within"] == 1
    # each of them puts the same mass on one word, whichever it is
    assert table.loc[WAYS["largest"], "within"] < 0.9
    assert ways_as_markdown(rows).count("\n") == 3 + len(WAYS)


def test_the_table_of_ways_is_of_right_and_of_wrong_attentions(monkeypatch):
    """Every way but one has larger numbers for the right ones; of those between nothing counts."""
    monkeypatch.setattr("research.bench.baselines.RESAMPLES", 20)
    standings = ["right", "wrong", "between"]
    answers = {"right": "yes", "wrong": "no", "between": "yes"}
    rows = pd.DataFrame(
        {
            "rule": np.repeat(["a", "b", "c", "d"], len(standings)),
            "model": np.repeat(["a", "b", "c", "d"], len(standings)),
            "standing": standings * 4,
            "texts": 30,
        }
    )
    rows["answer"] = rows["standing"].map(answers)
    for way in WAYS:
        rows[way] = (rows["standing"] == "right").astype(float)
    rows["largest"] = 1 - rows["largest"]

    table = table_of_ways(rows).set_index("way")
    lines = ways_as_markdown(rows).splitlines()

    assert table.index[-1] == WAYS["largest"]
    assert table.loc[WAYS["largest"], "auroc"] == 0
    others = table.drop(WAYS["largest"])
    assert (others["auroc"] == 1).all()
    assert (others["within"] == 1).all()
    assert table.loc[WAYS["share"], "yes_on_right"].value == 1
    assert table.loc[WAYS["share"], "yes_on_wrong"].value == 0
    assert lines[0] == "4 right and 4 wrong attentions of 4 models of 4 rules, 30 texts of each:"
    assert len(lines) == 4 + len(WAYS)


def test_a_way_says_yes_above_what_wrong_attentions_of_other_rules_have():
    """By hand: the 95 % quantile of 1, …, 20 is 19.05; a rule's own wrong ones play no part."""
    wrong = pd.DataFrame(
        {
            "rule": "a",
            "standing": "wrong",
            "largest": np.arange(1.0, 21),
        }
    )
    of_b = {
        "rule": "b",
        "standing": ["right", "right", "wrong"],
        "largest": [19.0, 19.1, 500.0],
    }
    rows = pd.concat([wrong, pd.DataFrame(of_b)], ignore_index=True)
    is_yes = says_yes(rows, "largest")
    assert is_yes[rows["rule"] == "b"].tolist() == [False, True, True]
    assert not is_yes[rows["rule"] == "a"].any()  # none is above the 500 of b


def test_the_verdict_says_yes_by_its_own_rule():
    rows = pd.DataFrame(
        {
            "rule": ["a", "b"],
            "answer": ["yes", "open"],
            "standing": "right",
        }
    )
    is_yes = says_yes(rows, "share")
    assert is_yes.tolist() == [True, False]
    assert yes_rate(rows, is_yes).value == 0.5


def test_keep_and_drop_is_high_for_the_words_that_decide_and_turns_with_the_order(bench):
    (model,) = bench.models()
    case = Case.of(bench, model)
    right = RationaleAttention(0, mass=0.95).given(case.subject.batch).double()
    wrong = FirstAttention(0).given(case.subject.batch).double()
    assert keep_drop(case, right) > 0.3
    assert abs(keep_drop(case, wrong)) < 0.2
    # the whole order turned round: what was kept is dropped
    assert keep_drop(case, -right) < -0.3


def test_an_interval_over_rules_resamples_rules():
    rows = pd.DataFrame({"rule": list("aabb"), "x": [0.0, 0.0, 1.0, 1.0]})
    value, low, high = over_resampled_rules(rows, lambda part: float(part["x"].mean()))
    assert (value, low, high) == (0.5, 0, 1)
