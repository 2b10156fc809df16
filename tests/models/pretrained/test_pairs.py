import shutil

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
from attnprobe.importance.leave_one_out import leave_one_out
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
    pieces = zip(encoding.sequence_ids(0), encoding.word_ids(0), weights.tolist(), strict=True)
    for text, word, weight in pieces:
        if word is not None:
            mass[text, word] = mass.get((text, word), 0.0) + weight
    return mass


def test_equal_words_on_either_side_of_the_border_of_a_pair_are_not_one_another():
    """Without the last word of the first text the pair is another one than without the first word
    of the second, though the words are the same."""
    pair = ("the film was fine", "fine music dull people")
    kind, folder = "SequenceClassification", checkpoint("bert")
    _, whole = library_says(kind, folder, *pair)
    without_last = library_says(kind, folder, "the film was", pair[1])[1]
    without_first = library_says(kind, folder, pair[0], "music dull people")[1]
    model = classifier()
    batch = batch_of(model, [pair[0]], [pair[1]])
    model.prepare(batch)
    with torch.no_grad():
        distance = leave_one_out(model, batch, model(batch)).distance[0]
    at_border = [
        (output.logits.softmax(-1) - whole.logits.softmax(-1)).abs().sum() / 2
        for output in (without_last, without_first)
    ]
    (places,) = batch.content[0].nonzero(as_tuple=True)
    assert_close(distance[places[3:5]].float(), torch.stack(at_border), atol=1e-5, rtol=0)
    assert abs(at_border[0] - at_border[1]) > 1e-3


@pytest.mark.parametrize("row", range(len(TEXTS)))
@pytest.mark.parametrize("attend_to", ATTENDED)
def test_prediction_and_attention_are_the_librarys_own(attend_to, row):
    model = classifier("bert")
    batch = batch_of(model, TEXTS, SECOND, attend_to)
    with torch.no_grad():
        outputs = model(batch)
    encoding, expected = library_says(
        "SequenceClassification", checkpoint("bert"), TEXTS[row], SECOND[row]
    )
    mass = mass_of_words(encoding, expected.attentions[-1][0, :, 0].mean(0))
    attended = [word for word in mass if word[0] in ATTENDED[attend_to]]
    weights = torch.tensor([mass[word] for word in attended])
    total = weights.sum()

    content = batch.content[row]
    assert_close(outputs.logits[row], expected.logits[0], atol=1e-5, rtol=0)
    assert_close(outputs.attention[row, content], weights / total, atol=1e-5, rtol=0)
    assert outputs.off_text[row].item() == pytest.approx(1 - total.item(), abs=1e-5)
    assert batch.segment[row, content].tolist() == [text for text, _ in attended]


SHORT = Passage.of_words(["the", "film", "was", "fine"])


LONG = Passage.of_words(["a", "long", "and", "dull", "story", "of", "people", "unable"])


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        (SHORT, LONG, [True] * 9 + [False] * 3),
        (LONG, SHORT, [True] * 5 + [False] * 3 + [True] * 4),
    ],
    ids=["second", "first"],
)
def test_the_longer_text_is_cut_and_what_is_cut_is_counted(first, second, kept):
    reader = PieceReader(families.tokenizer(), 12)
    (reading,) = reader.read([Passages.paired(first, second, "both")])
    assert reading.kept.tolist() == kept
    assert reading.cut == 3


def test_a_prompt_has_a_place_for_either_text():
    """The first text spells out the place of the second one."""
    prompt = "Story: {text2}\nReview: {text}\nSentiment:"
    model = families.prompted("gpt2", prompt=prompt)
    tokenizer = model.reader.tokenizer
    batch = batch_of(model, ["the film was fine {text2}"], ["people"])
    string = "Story: people\nReview: the film was fine {text2}\nSentiment:"
    assert batch.pieces[0].tolist() == tokenizer(string).input_ids
    words = []
    for number in range(1, 7):
        pieces = batch.pieces[0, batch.piece_word[0] == number]
        words.append(tokenizer.decode(pieces).strip())
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


@pytest.fixture
def pair_swapper():
    """A pair, and as its filler all words of another pair but its first: story of music, able to
    see the film."""
    model = classifier("bert")
    first_texts = ["the film was fine", "a story of music"]
    second_texts = ["dull people", "able to see the film"]
    batch = batch_of(model, first_texts, second_texts)
    filler = Filler.of([batch.rows(slice(1, 2))])
    return Swapper(model, batch.rows(slice(0, 1)), filler)


def test_filler_of_a_pair_comes_from_the_same_text_of_other_pairs(pair_swapper):
    drawn = pair_swapper.draw_filler(200, torch.Generator().manual_seed(0))
    of_first_text = drawn[:, :4].flatten()
    of_second_text = drawn[:, 4:].flatten()
    assert set(of_first_text.tolist()) == {0, 1, 2}
    assert set(of_second_text.tolist()) == {3, 4, 5, 6, 7}


def premises_and_hypotheses():
    """24 pairs and their labels, n and p."""
    rows = []
    for number in range(24):
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


def test_words_of_a_pair_are_swapped_with_their_pieces(pair_swapper):
    tokenizer = pair_swapper.run.reader.tokenizer
    kept = torch.tensor([[True, False, False, True, False, True]])
    drawn = torch.tensor([[0, 0, 2, 0, 3, 4]])
    swapped = pair_swapper.swapped(kept, drawn)
    pieces = tokenizer.convert_ids_to_tokens(swapped.pieces[0])
    assert pieces == ["[CLS]", "the", "story", "music", "fine", "[SEP]", "able", "people", "[SEP]"]


def test_a_run_on_pairs_says_how_much_of_each_attention_is_on_the_second_text(pairs):
    texts = {(premise, hypothesis) for premise, hypothesis, _ in premises_and_hypotheses()}
    examples = read_examples(pairs)
    on_second = []
    for example in examples.itertuples():
        count = example.first_words
        first = " ".join(example.tokens[:count])
        second = " ".join(example.tokens[count:])
        assert (first, second) in texts
        on_second.append(1 - sum(example.attention[:count]))
    expected = on_second * (1 - examples["special_mass"])
    assert_allclose(examples["second_mass"], expected, atol=1e-5)


def test_a_run_on_pairs_says_where_the_attention_is(pairs):
    result = read_run(pairs)
    mean = read_examples(pairs)[["second_mass", "special_mass", "start_mass"]].mean()
    share = mean["second_mass"] / (1 - mean["special_mass"])
    assert f"{100 * share:.0f} % of what is on words is on the second text" in result.attention_on
    start_mass = result.manifest["attention_on"]["start_mass"]
    assert start_mass == pytest.approx(mean["start_mass"], abs=1e-3)


def test_a_run_on_pairs_that_is_opened_again_explains_pairs(pairs):
    loaded = load_run(pairs)
    explained = loaded.explain(["the film was"], ["was fine"])
    assert explained["tokens"][0] == ["the", "film", "was", "was", "fine"]
    assert explained["first_words"].tolist() == [3]
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
    explained = load_run(directory).explain(["the film was"], ["was fine"])
    assert explained["tokens"][0] == ["was", "fine"]
    assert "Text 1 the film was → " in explained._repr_html_()
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
