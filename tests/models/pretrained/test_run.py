import json
import random
import shutil
from html import unescape

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.findings.groups import grouped, read_run
from attnprobe.findings.sheet import sheet_of
from attnprobe.findings.stored import card_of_run
from attnprobe.report.page.build import write_report
from attnprobe.report.terminal import answer_lines, data_notes
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.launching import objective
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from attnprobe.runs.studies import carry_out_study
from tests.invented_runs import without_pictures
from tests.models.pretrained.families import WORDS, checkpoint, library, library_says, run_settings
from tests.small_runs import SMALL_ADVERSARY, composed

pytest.importorskip("transformers")
LABELS = ("very bad", "so-so", "Good", "great")
PROBES = [
    "permutation",
    "adversarial",
    "gradient",
    "leave_one_out",
    "correlation",
    "single_weight",
    "erasure",
]


def labelled_rows(count):
    """Texts that all end in "unable", under the labels' names in another spelling."""
    draw = random.Random(0)
    rows = []
    for number in range(count):
        words = draw.choices(WORDS, k=draw.randint(3, 8))
        label = ("Great", "good", "so_so", "very bad")[number % 4]
        rows.append((" ".join([*words, "unable"]), label))
    return rows


ROWS = labelled_rows(32)


def config(folder, output, *overrides, rows=ROWS, training="none"):
    return composed(*run_settings(folder, rows, output, *overrides, training=training))


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    """A run on a checkpoint as it is."""
    settings = config(
        checkpoint("distilbert", LABELS),
        tmp_path_factory.mktemp("examined"),
        "model.name=theirs",
        f"probe=[{','.join(PROBES)}]",
        *SMALL_ADVERSARY,
    )
    return run(settings)


def test_every_probe_runs_on_a_checkpoint_as_it_is(examined):
    results = read_results(examined)
    assert set(results["probe"]) >= {
        "permutation",
        "adversarial",
        "gradient",
        "leave_one_out",
        "erasure",
    }
    assert set(results["model"]) == {"theirs"}
    values = results[results["metric"] == "median_tvd"]["value"]
    assert values.between(0, 1).all()
    assert values.max() > 1e-3


def test_a_manifest_says_how_a_checkpoint_was_examined(examined):
    manifest = RunDirectory(examined).manifest()
    assert manifest["model_facts"]["short_way"]
    assert manifest["model_facts"]["differences"]["replaced"] < 1e-9
    assert manifest["chosen_epoch"] is None
    assert {split: count["kept"] for split, count in manifest["counts"].items()} == {"test": 32}
    # nothing is trained, and pieces spell any word
    checks = {check["name"] for check in manifest["data_section"]["checks"]}
    assert "test rows" in checks
    assert not checks & {"training rows", "unknown words"}


def test_a_sweep_of_runs_that_train_nothing_has_nothing_to_optimise_and_ends_well(examined):
    assert objective(examined) is None


def first_examples(directory):
    """The first rows of a run, and what the library's own pipeline says of their texts."""
    for row in read_examples(directory)[:5].to_dict("records"):
        text = " ".join(row["tokens"])
        folder = checkpoint("distilbert", LABELS)
        yield row, *library_says("SequenceClassification", folder, text)


def test_probabilities_of_a_checkpoint_are_the_librarys(examined):
    outputs = {"very bad": 0, "so_so": 1, "good": 2, "Good": 2, "Great": 3}
    order = [outputs[name] for name in RunDirectory(examined).manifest()["classes"]]
    for row, _, output in first_examples(examined):
        expected = output.logits.softmax(-1)[0][order]
        probability = torch.tensor(row["probability"]).float()
        assert_close(probability, expected, atol=1e-5, rtol=0)


def test_the_attention_on_special_pieces_is_the_librarys(examined):
    for row, _, output in first_examples(examined):
        rows = output.attentions[-1][0, :, 0]
        # the first piece and the last one are of no word
        special = float(rows[:, [0, -1]].sum(-1).mean())
        assert abs(special - row["special_mass"]) < 1e-5


def test_pieces_and_their_attention_are_the_librarys(examined):
    row, encoding, output = next(first_examples(examined))
    assert list(row["pieces"]) == encoding.tokens()
    words = [-1 if word is None else word for word in encoding.word_ids()]
    assert list(row["piece_word"]) == words
    attention = torch.tensor(row["piece_attention"])
    expected = output.attentions[-1][0, :, 0].mean(0)
    assert_close(attention, expected, atol=1e-5, rtol=0)


def test_a_run_on_a_checkpoint_is_opened_again_and_explains(examined):
    loaded = load_run(examined)
    assert loaded.pipeline.pieces.unknown(["able", "fine", "☃"]) == {"☃"}
    explained = loaded.explain(["the film was unable to see", "fine"])
    assert list(explained["tokens"][0]) == ["the", "film", "was", "unable", "to", "see"]
    assert abs(sum(explained["attention"][0]) - 1) < 1e-5
    assert len(explained["leave_one_out"][0]) == 6


@pytest.fixture
def relative(tmp_path, monkeypatch):
    """A run whose checkpoint is at a relative path, and its folder, from another folder."""
    home = tmp_path / "home"
    shutil.copytree(checkpoint("distilbert", LABELS), home / "mine")
    monkeypatch.chdir(home)
    made = run(config("mine", home, "run_dir=runs/mine", "probe=[]"))
    expected = load_run(made).explain(["the film was unable"])["attention"][0]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return home / made, home / "mine", expected


def test_a_run_on_a_relative_path_is_explained_from_any_folder(relative):
    made, _, expected = relative
    assert load_run(made).explain(["the film was unable"])["attention"][0] == expected
    moved = made.rename(made.parent / "moved")  # beside it, the way back is as long
    assert load_run(moved).explain(["the film was unable"])["attention"][0] == expected


def test_a_tokenizer_that_has_changed_since_reads_no_text_of_a_run(relative):
    made, folder, _ = relative
    file = folder / "tokenizer_config.json"
    file.write_text(file.read_text() + " ")
    with pytest.raises(UserError, match=r"tokenizer_config\.json is not what it was when .*: put"):
        load_run(made)
    shutil.rmtree(folder)
    with pytest.raises(UserError, match=r"model\.path=mine: there is no such folder in "):
        load_run(made)


@pytest.mark.parametrize("given", ["first", "random"])
def test_a_sink_on_the_first_word_is_said_on_page_and_terminal(tmp_path, given):
    folder = checkpoint("gpt2", LABELS)
    directory = run(config(folder, tmp_path, f"model.given={given}", "probe=[permutation]"))
    first = np.mean([weights[0] for weights in read_examples(directory)["attention"]])
    if given == "first":
        assert first == pytest.approx(0.95, abs=1e-3)
    else:
        assert first < 0.5

    result = read_run(directory)
    (group,) = grouped([result])
    lines = answer_lines(sheet_of(group, card_of_run(result)))
    terminal = " ".join(" ".join(lines).split())
    with without_pictures():
        path = write_report(directory, tmp_path / "report.html")
    page = unescape(path.read_text(encoding="utf-8")).replace("\N{NO-BREAK SPACE}", " ")
    sentence = "95 % of what is on words is on the first one"
    assert (sentence in terminal) == (given == "first")
    assert (sentence in page) == (given == "first")


def test_data_without_one_of_its_classes_whose_texts_it_cuts_and_half_knows(tmp_path, capsys):
    """Of 12 texts 4 are longer than 8 pieces, and 12 of the 48 words that are read are none of the
    tokenizer's."""
    folder = checkpoint("distilbert", LABELS)
    texts = ["the film ☃ was fine dull fine dull", "the film ☃ was", "the film ☃ was"]
    rows = list(zip(texts, LABELS[1:], strict=True)) * 4
    settings = config(folder, tmp_path, "model.max_pieces=8", "probe=[permutation]", rows=rows)
    directory = run(settings)
    output = " ".join(capsys.readouterr().out.split())
    assert "by name: Good, great, so-so; no row is very bad" in output
    assert "warning: data rows: 4 of 12 texts are cut at 8 pieces, 8 words in all" in output
    # 12 of 4 × 6 + 8 × 4
    assert "warning: data rows: 21 % of the words are unknown to the tokenizer" in output

    manifest = RunDirectory(directory).manifest()
    assert manifest["classes"] == ["Good", "great", "so-so", "very bad"]
    assert manifest["counts"]["test"]["per class"] == {
        "Good": 4,
        "great": 4,
        "so-so": 4,
        "very bad": 0,
    }
    assert data_notes(manifest["counts"]) == ["test: 4 texts cut at the model's longest"]


def test_texts_of_which_the_tokenizer_knows_no_word_are_refused(tmp_path):
    rows = [("☃ ☃☃", "great"), ("☂", "Good")] * 5
    settings = config(checkpoint("distilbert", LABELS), tmp_path, "probe=[permutation]", rows=rows)
    with pytest.raises(UserError, match="knows none of the 15 words of these texts"):
        run(settings)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ("jain", "=none, or fine-tune it with training=finetune"),
        ("none", "its labels are"),
    ],
)
def test_a_checkpoint_of_other_classes_must_be_fine_tuned(tmp_path, training, message):
    settings = config(checkpoint("bert"), tmp_path, "probe=[permutation]", training=training)
    with pytest.raises(UserError, match=message):
        run(settings)
    assert not list(tmp_path.rglob("manifest.json"))


def test_fine_tuning_changes_the_weights_and_keeps_the_recipe(tmp_path):
    folder = checkpoint("bert")
    overrides = ["training.epochs=2", "probe=[permutation]"]
    rows = labelled_rows(80)
    directory = run(config(folder, tmp_path, *overrides, rows=rows, training="finetune"))
    manifest = RunDirectory(directory).manifest()
    assert manifest["chosen_epoch"] in (0, 1)
    assert len(manifest["classes"]) == 4  # a new head: the checkpoint's had two
    before = library("SequenceClassification", folder)[0].bert.state_dict()
    after = load_run(directory).classifier.network.bert.state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_the_audit_of_a_checkpoint_trains_nothing(tmp_path, capsys):
    settings = run_settings(
        checkpoint("distilbert", LABELS),
        ROWS,
        tmp_path,
        "study.probes=[permutation,erasure]",
    )
    settings.remove("figures=false")
    command = ["+experiment=audit", *settings]
    study = carry_out_study(command, lambda overrides: composed(*overrides))
    assert "nothing to train, 2 probes on " in " ".join(capsys.readouterr().out.split())
    (member,) = json.loads((study / "study.json").read_text())["members"]
    assert RunDirectory(study / member["directory"]).manifest()["chosen_epoch"] is None
