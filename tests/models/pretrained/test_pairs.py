import shutil

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from attnprobe.cli.explain import explain
from attnprobe.core.errors import UserError
from attnprobe.data.columns import Columns
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.pieces import PieceReader
from attnprobe.findings.groups import grouped, read_run
from attnprobe.importance.word_swaps import Filler, Swapper
from attnprobe.report.page.browser import browse
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained import families
from tests.models.pretrained.families import (
    TEXTS,
    WORDS,
    batch_of,
    checkpoint,
    classifier,
    library_says,
    run_settings,
)
from tests.small_runs import FEW_PASSES, composed

pytest.importorskip("transformers")
SECOND = ["dull people", "the music was fine and the story long", "a film of people"]
ATTENDED = {"both": (0, 1), "first": (0,), "second": (1,)}


def mass_of_words(encoding, weights):
    """(Number of the text, number of the word in it) → the sum of its pieces' weights, in reading
    order."""
    mass = {}
    for text, word, weight in zip(
        encoding.sequence_ids(0),
        encoding.word_ids(0),
        weights.tolist(),
        strict=True,
    ):
        if word is not None:
            mass[text, word] = mass.get((text, word), 0.0) + weight
    return mass


@pytest.mark.parametrize("attend_to", ATTENDED)
def test_prediction_and_attention_are_the_librarys_own(attend_to):
    model = classifier("bert")
    batch = batch_of(model, TEXTS, SECOND, attend_to)
    with torch.no_grad():
        outputs = model(batch)
    for row, pair in enumerate(zip(TEXTS, SECOND, strict=True)):
        encoding, expected = library_says("SequenceClassification", checkpoint("bert"), *pair)
        assert_close(outputs.logits[row], expected.logits[0], atol=1e-5, rtol=0)

        mass = mass_of_words(encoding, expected.attentions[-1][0, :, 0].mean(0))
        attended = [word for word in mass if word[0] in ATTENDED[attend_to]]
        weights = torch.tensor([mass[word] for word in attended])
        content = batch.content[row]
        attention = outputs.attention[row][content]
        assert_close(attention, weights / weights.sum(), atol=1e-5, rtol=0)
        assert abs(float(outputs.off_text[row]) - (1 - float(weights.sum()))) < 1e-5
        assert batch.segment[row][content].tolist() == [text for text, _ in attended]


def test_the_longer_text_is_cut_and_what_is_cut_is_counted():
    reader = PieceReader(families.tokenizer(), 12)
    first = Passage.of_words(["the", "film", "was", "fine"])
    words = ["a", "long", "and", "dull", "story", "of", "people", "unable"]
    second = Passage.of_words(words)
    (longer_last,) = reader.read([Passages.paired(first, second, "both")])
    (longer_first,) = reader.read([Passages.paired(second, first, "both")])
    assert longer_last.kept.tolist() == [True] * 9 + [False] * 3
    assert longer_first.kept.tolist() == [True] * 5 + [False] * 3 + [True] * 4
    assert longer_last.cut == longer_first.cut == 3


def test_a_prompt_has_a_place_for_either_text():
    prompt = "Story: {text2}\nReview: {text}\nSentiment:"
    model = families.prompted("gpt2", prompt=prompt)
    batch = batch_of(model, ["the film was fine {text2}"], ["people"])
    string = "Story: people\nReview: the film was fine {text2}\nSentiment:"
    assert batch.pieces[0].tolist() == model.reader.tokenizer(string).input_ids
    spelling = dict.fromkeys(range(-1, 7), "")
    for piece, word in zip(batch.pieces[0].tolist(), batch.piece_word[0].tolist(), strict=True):
        spelling[word] += model.reader.tokenizer.decode([piece])
    words = [spelling[number].strip() for number in range(1, 7)]
    assert words == ["the", "film", "was", "fine", "{text2}", "people"]


def test_a_prompt_with_two_places_needs_a_second_text():
    model = families.prompted("gpt2", prompt="Story: {text2}\nReview: {text}\nSentiment:")
    with pytest.raises(UserError, match=r"expected data.text2"):
        batch_of(model, ["fine"])


def test_a_second_text_needs_a_place_in_the_prompt():
    with pytest.raises(UserError, match=r"as data.text2 gives a second text"):
        batch_of(families.prompted("gpt2"), ["fine"], ["dull"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"text2": "b", "question": "c"},
            r"data.text2=b and data.question=c exclude each other",
        ),
        (
            {"text2": "b", "rationale": "r", "rationale_kind": "characters"},
            r"data.attend_to=first or second",
        ),
    ],
)
def test_columns_that_exclude_a_second_text_are_refused(columns, message):
    with pytest.raises(UserError, match=message):
        Columns(**columns)


def test_filler_of_a_pair_comes_from_the_same_text_of_other_pairs():
    model = classifier("bert")
    batch = batch_of(
        model,
        ["the film was fine", "a story of music"],
        ["dull people", "able to see the film"],
    )
    # all words of the other pair but its first: story of music, able to see the film
    filler = Filler.of([batch.rows(slice(1, 2))])
    swapper = Swapper(model, batch.rows(slice(0, 1)), filler)

    drawn = swapper.draw_filler(200, torch.Generator().manual_seed(0))
    assert set(drawn[:, :4].flatten().tolist()) == {0, 1, 2}
    assert set(drawn[:, 4:].flatten().tolist()) == {3, 4, 5, 6, 7}

    kept = torch.tensor([[True, False, False, True, False, True]])
    swapped = swapper.swapped(kept, torch.tensor([[0, 0, 2, 0, 3, 4]]))
    pieces = model.reader.tokenizer.convert_ids_to_tokens(swapped.pieces[0])
    assert pieces == ["[CLS]", "the", "story", "music", "fine", "[SEP]", "able", "people", "[SEP]"]


def premises_and_hypotheses():
    """60 pairs and their labels, n and p."""
    rows = []
    for number in range(60):
        start = number % 6
        premise = " ".join(WORDS[start : start + 3 + number % 4])
        start = number % 9
        hypothesis = " ".join(WORDS[start : start + 2 + number % 3])
        rows.append((premise, hypothesis, "np"[number % 2]))
    return rows


def pair_settings(output):
    return run_settings(
        checkpoint("bert", ("n", "p")),
        premises_and_hypotheses(),
        output,
        "probe=[permutation,leave_one_out,swaps]",
        *FEW_PASSES,
        "data.text=premise",
        header=("premise", "hypothesis", "label"),
    )


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A run on pairs."""
    settings = pair_settings(tmp_path_factory.mktemp("pairs"))
    return run(composed(*settings, "data.text2=hypothesis"))


def test_a_second_text_that_is_called_a_question_is_refused(tmp_path):
    settings = pair_settings(tmp_path)
    with pytest.raises(UserError, match=r"data.question=null data.text2=hypothesis"):
        run(composed(*settings, "data.question=hypothesis"))


def test_every_probe_runs_on_pairs(pairs):
    assert set(read_results(pairs)["probe"]) >= {"permutation", "leave_one_out", "swaps"}


def test_a_run_on_pairs_says_where_the_attention_is(pairs):
    examples = read_examples(pairs)
    texts = {row[:2] for row in premises_and_hypotheses()}
    on_first = []
    for row in examples.itertuples():
        count = row.first_words
        assert (" ".join(row.tokens[:count]), " ".join(row.tokens[count:])) in texts
        on_first.append(sum(row.attention[:count]))
    expected = (1 - np.array(on_first)) * (1 - examples["special_mass"])
    assert_allclose(examples["second_mass"], expected, atol=1e-5)

    result = read_run(pairs)
    share = examples["second_mass"].mean() / (1 - examples["special_mass"].mean())
    assert f"{share:.0%} of what is on words is on the second text" in result.attention_on
    start_mass = result.manifest["attention_on"]["start_mass"]
    assert abs(start_mass - examples["start_mass"].mean()) < 1e-3


def test_a_run_on_pairs_that_is_opened_again_explains_pairs(pairs):
    loaded = load_run(pairs)
    explained = loaded.explain(["the film was"], ["was fine"])
    assert explained["tokens"][0] == ["the", "film", "was", "was", "fine"]
    with pytest.raises(UserError, match=r"expected questions=\[…\], a list of 1"):
        loaded.explain(["the film was"])


def second_text_config(folder, output):
    """A run that attends to the second text of each pair."""
    rows = []
    for number in range(12):
        first = f"the film {WORDS[number % 6]} {WORDS[number % 5]}"
        second = f"people {WORDS[number % 7]}"
        rows.append((first, second, "np"[number % 2]))
    return composed(
        *run_settings(
            folder,
            rows,
            output,
            "data.text=a",
            "data.text2=b",
            "data.attend_to=second",
            "probe=[permutation]",
            header=("a", "b", "label"),
        )
    )


def test_the_text_that_is_not_attended_to_has_its_name(tmp_path, capsys):
    directory = run(second_text_config(checkpoint("bert", ("n", "p")), tmp_path))
    (entry,) = browse(grouped([read_run(directory)])).index["runs"]
    assert entry["other_text"] == "First text"

    explain([str(directory), "the film was", "--text2", "was fine"])
    assert "text: the film was\n  read with: was fine" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        explain([str(directory), "the film was"])
    assert "--text2 TEXT" in capsys.readouterr().err


def test_a_checkpoint_that_changed_in_place_is_noticed(tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint("bert", ("n", "p")), folder)
    config = second_text_config(folder, tmp_path)
    directory = run(config)
    assert run(config, sweep=True) == directory

    file = folder / "model.safetensors"
    weights = {name: tensor + 0.25 for name, tensor in load_file(file).items()}
    save_file(weights, file, {"format": "pt"})
    message = r"the content of model.path/model.safetensors has changed since"
    with pytest.raises(UserError, match=message):
        run(config, sweep=True)
