import json
import random
from html import unescape

import numpy as np
import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.findings.groups import read_run
from attnprobe.findings.stored import card_of_run
from attnprobe.report.page.build import write_report
from attnprobe.report.terminal import answer_lines, data_notes
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.launching import objective
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from attnprobe.runs.studies import carry_out_study
from tests.models.pretrained.families import WORDS, checkpoint, library, library_says, run_settings
from tests.small_runs import SMALL_ADVERSARY, composed

pytest.importorskip("transformers")
LABELS = ("very bad", "so-so", "Good", "great")
PROBES = "probe=[permutation,adversarial,gradient,leave_one_out,correlation,single_weight,erasure]"
DRAW = random.Random(0)
ROWS = [
    (
        " ".join([*DRAW.choices(WORDS, k=DRAW.randint(3, 8)), "unable"]),
        ("Great", "good", "so_so", "very bad")[n % 4],
    )
    for n in range(80)
]


def config(folder, output, *overrides, rows=ROWS, training="none"):
    return composed(*run_settings(folder, rows, output, *overrides, training=training))


def test_a_checkpoint_is_examined_as_it_is(tmp_path):
    path = checkpoint("distilbert", LABELS)
    directory = run(config(path, tmp_path, "model.name=theirs", PROBES, *SMALL_ADVERSARY))
    results = read_results(directory)
    examples = read_examples(directory)
    assert set(results["probe"]) >= {
        "permutation",
        "adversarial",
        "gradient",
        "leave_one_out",
        "erasure",
    }
    assert set(results["model"]) == {"theirs"}
    manifest = RunDirectory(directory).manifest()
    assert manifest["model_facts"]["short_way"]
    assert manifest["model_facts"]["differences"]["replaced"] < 1e-9
    assert manifest["chosen_epoch"] is None
    checks = {check["name"] for check in manifest["data_section"]["checks"]}
    assert "test rows" in checks
    assert not checks & {
        "training rows",
        "unknown words",
    }  # nothing is trained, and pieces spell any word
    assert {split: count["kept"] for split, count in manifest["counts"].items()} == {"test": 80}
    assert (
        objective(directory) is None
    )  # a sweep of such runs has nothing to optimise, and ends well
    values = results[results["metric"] == "median_tvd"]["value"]
    assert values.between(0, 1).all()
    assert values.max() > 1e-3
    # what the library's own pipeline says of the same texts
    own = dict(zip(["very bad", "so_so", "Good", "Great"], range(4), strict=True))
    own |= {"good": own["Good"]}
    for number, row in enumerate(examples[:5].to_dict("records")):
        asked, said = library_says("SequenceClassification", path, " ".join(row["tokens"]))
        expected = said.logits.softmax(-1)[0][[own[name] for name in manifest["classes"]]]
        torch.testing.assert_close(
            torch.tensor(row["probability"]).float(), expected, atol=1e-5, rtol=0
        )
        rows = said.attentions[-1][0, :, 0]
        # what the first attended piece and the last one have is on no word
        assert abs(float(rows[:, [0, -1]].sum(-1).mean()) - row["special_mass"]) < 1e-5
        if number == 0:
            assert list(row["pieces"]) == asked.tokens()
            torch.testing.assert_close(
                torch.tensor(row["piece_attention"]), rows.mean(0), atol=1e-5, rtol=0
            )
            assert list(row["piece_word"]) == [
                -1 if word is None else word for word in asked.word_ids()
            ]
    loaded = load_run(directory)
    assert loaded.pipeline.pieces.unknown(["able", "fine", "☃"]) == {"☃"}
    explained = loaded.explain(["the film was unable to see", "fine"])
    assert list(explained["tokens"][0]) == ["the", "film", "was", "unable", "to", "see"]
    assert abs(sum(explained["attention"][0]) - 1) < 1e-5
    assert len(explained["leave_one_out"][0]) == 6


@pytest.mark.parametrize("given", ["first", "random"])
def test_a_sink_on_the_first_word_is_said_on_page_and_terminal(tmp_path, given):
    directory = run(
        config(checkpoint("gpt2", LABELS), tmp_path, f"model.given={given}", "probe=[permutation]")
    )
    read = read_run(directory)
    first = np.mean([weights[0] for weights in read_examples(directory)["attention"]])
    assert first == pytest.approx(0.95, abs=1e-3) if given == "first" else first < 0.5
    page = unescape(write_report(directory, tmp_path / "report.html").read_text(encoding="utf-8"))
    terminal = " ".join(
        " ".join(answer_lines(card_of_run(read), read.quality, read.attention_on)).split()
    )
    for shown in (page, terminal):
        assert ("95% of what is on words is on the first one" in shown) == (given == "first")


def test_data_without_one_of_its_classes_whose_texts_it_cuts_and_half_knows(tmp_path, capsys):
    """Of 12 texts 4 are longer than 8 pieces, and 12 of the 48 words that are read are none of the
    tokenizer's."""
    path = checkpoint("distilbert", LABELS)
    words = ["the film ☃ was fine dull fine dull", "the film ☃ was", "the film ☃ was"]
    rows = [(words[number % 3], LABELS[1 + number % 3]) for number in range(12)]
    directory = run(config(path, tmp_path, "model.max_pieces=8", "probe=[permutation]", rows=rows))
    said = capsys.readouterr().out
    assert "by name: Good, great, so-so; no row is very bad" in said
    assert "warning: data rows: 4 of 12 texts are cut at 8 pieces, 8 words in all" in said
    assert (
        "warning: data rows: 21 % of the words are unknown to the tokenizer" in said
    )  # 12 of 4 × 6 + 8 × 4
    manifest = RunDirectory(directory).manifest()
    assert manifest["classes"] == ["Good", "great", "so-so", "very bad"]
    assert manifest["counts"]["test"]["per class"] == {
        "Good": 4,
        "great": 4,
        "so-so": 4,
        "very bad": 0,
    }
    assert data_notes(manifest["counts"]) == ["test: 4 texts cut at the model's longest"]
    with pytest.raises(UserError, match="knows none of the 15 words of these texts"):
        run(
            config(
                path, tmp_path, "probe=[permutation]", rows=[("☃ ☃☃", "great"), ("☂", "Good")] * 5
            )
        )


def test_fine_tuning_changes_the_weights_and_keeps_the_recipe(tmp_path):
    path = checkpoint("bert")
    for training, message in (
        ("jain", "=none, or fine-tune it with training=finetune"),
        ("none", "its labels are"),
    ):
        with pytest.raises(UserError, match=message):
            run(config(path, tmp_path, "probe=[permutation]", training=training))
    assert not list(tmp_path.rglob("manifest.json"))
    directory = run(
        config(path, tmp_path, "training.epochs=2", "probe=[permutation]", training="finetune")
    )
    manifest = RunDirectory(directory).manifest()
    assert manifest["chosen_epoch"] in (0, 1)
    assert len(manifest["classes"]) == 4  # a new head: the checkpoint's had two
    loaded = load_run(directory).classifier
    before = library("SequenceClassification", path)[0].bert.state_dict()
    after = loaded.network.bert.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_audit_of_a_checkpoint_trains_nothing(tmp_path, capsys):
    asked = run_settings(
        checkpoint("distilbert", LABELS), ROWS, tmp_path, "study.probes=[permutation,erasure]"
    )
    command = ["+experiment=audit", *(one for one in asked if one != "figures=false")]
    study = carry_out_study(command, lambda overrides: composed(*overrides))
    assert "nothing to train, 2 probes on " in capsys.readouterr().out
    (member,) = json.loads((study / "study.json").read_text())["members"]
    assert RunDirectory(study / member["directory"]).manifest()["chosen_epoch"] is None
