"""A word that is removed with its characters: what is left is read as the library reads it."""

import re

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Task, prediction_distance
from attnprobe.importance.base import Subject
from attnprobe.importance.leave_one_out.removal import leave_one_out
from attnprobe.importance.word_removal import predictions_keeping
from attnprobe.results.table import read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained import families
from tests.models.pretrained.families import LABELS, PROMPT, run_settings
from tests.models.pretrained.whole_words import (
    byte_tokenizer,
    library_says,
    network,
    opened,
    tokenizer,
)
from tests.small_runs import FEW_PASSES, composed

transformers = pytest.importorskip("transformers")
CHARACTERS = "model.removal=characters"
TEXTS = [
    "the film was very good and dull",
    "  a\tfilm\n\nwas  the plot \n",
    "music!  was it",
    "the very\u00a0bad",
]
ROWS = [(text, ("no", "yes")[number % 2]) for number, text in enumerate(TEXTS)]


def without(text, *numbers):
    """The text without these words and the white space after them (before them at its end)."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    for number in sorted(numbers, reverse=True):
        start, end = words.pop(number)
        if number < len(words):
            text = text[:start] + text[words_start(text, end) :]
            words = [match.span() for match in re.finditer(r"\S+", text)]
        else:
            before = words[-1][1] if words else start
            text = text[:before] + text[end:]
    return text


def words_start(text, place):
    """Where the next word starts, from this place on."""
    return place + re.search(r"\S", text[place:]).start()


def llama(folder):
    reader = families.language_tokenizer("llama")
    reader.save_pretrained(folder)
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    plain = network(folder, "Llama", vocab_size=len(reader), **ends)
    return reader, plain


def gpt2(folder):
    reader = families.language_tokenizer("gpt2")
    reader.save_pretrained(folder)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "pad_token_id": 0}
    return reader, network(folder, "GPT2", vocab_size=len(reader), **sizes)


def roberta(folder):
    reader = byte_tokenizer(folder)
    settings = {"vocab_size": len(reader), "max_position_embeddings": 310, "pad_token_id": 0}
    return reader, network(folder, "Roberta", initializer_range=0.6, type_vocab_size=1, **settings)


def joining(folder):
    """A BERT of which two words that come to stand side by side may share a piece."""
    reader = tokenizer(folder, added=["film very", "a film"])
    return reader, network(folder, "Bert", vocab_size=len(reader))


CHECKPOINTS = {"gpt2": gpt2, "roberta": roberta, "llama": llama, "two words in a piece": joining}


@pytest.fixture(params=CHECKPOINTS)
def checkpoint(request, tmp_path):
    return CHECKPOINTS[request.param](tmp_path / "model"), tmp_path


def examined(result):
    """The model, and its texts and outputs in one batch."""
    batch = result.data.splits["test"][list(range(len(TEXTS)))]
    with torch.no_grad():
        outputs = result.model(batch)
    return result.model, batch, outputs


def by_plain_loop(reader, plain, texts):
    """TVD of the library's predictions of each text without each word, and of the whole text."""
    result = []
    for text in texts:
        whole = library_says(plain, reader, text).softmax(-1)
        rows = []
        for number in range(len(text.split())):
            rest = library_says(plain, reader, without(text, number)).softmax(-1)
            rows.append(float((rest - whole).abs().sum() / 2))
        result.append(rows)
    return result


def test_the_rule_of_what_goes_with_a_word():
    assert without(TEXTS[0], 0) == "film was very good and dull"
    assert without(TEXTS[1], 1) == "  a\twas  the plot \n"
    assert without(TEXTS[1], 4) == "  a\tfilm\n\nwas  the \n"
    assert without(TEXTS[1], 3, 4) == "  a\tfilm\n\nwas \n"


def test_leave_one_out_is_that_of_a_plain_loop(checkpoint):
    (reader, plain), folder = checkpoint
    model, batch, outputs = examined(opened(folder / "model", ROWS, folder, CHARACTERS))
    expected = by_plain_loop(reader, plain, TEXTS)
    distance = leave_one_out(model, batch, outputs).distance
    for row, text in enumerate(TEXTS):
        if int(batch.content[row].sum()) < len(text.split()):
            continue  # two of its words are one unit
        measured = distance[row, batch.content[row]]
        assert_close(measured, torch.tensor(expected[row]).double(), atol=1e-5, rtol=0)


def test_several_words_that_go_are_no_longer_in_the_string(checkpoint):
    (reader, plain), folder = checkpoint
    model, batch, outputs = examined(opened(folder / "model", ROWS, folder, CHARACTERS))
    keep = batch.content.clone()
    gone = {0: (0, 3, 6), 1: (0, 1, 4), 2: (1,), 3: (0,)}
    is_whole = [
        int(batch.content[row].sum()) == len(text.split()) for row, text in enumerate(TEXTS)
    ]
    assert sum(is_whole) >= 3
    for row, words in gone.items():
        if is_whole[row]:
            keep[row, [1 + word for word in words]] = False
    subject = Subject(model, batch, outputs, model.readout(batch, outputs))
    predicted = predictions_keeping(subject, keep, "delete")
    for row, words in gone.items():
        if is_whole[row]:
            expected = library_says(plain, reader, without(TEXTS[row], *words)).softmax(-1)
            assert_close(predicted[row], expected, atol=1e-5, rtol=0)


def test_pieces_that_stay_are_another_text_of_a_byte_level_tokenizer(tmp_path):
    """What the option is for: without the first word the next one keeps its space."""
    reader, plain = gpt2(tmp_path / "model")
    (tmp_path / "pieces").mkdir()
    by_pieces = opened(tmp_path / "model", ROWS, tmp_path / "pieces")
    model, batch, outputs = examined(by_pieces)
    of_pieces = leave_one_out(model, batch, outputs).distance[0, 1]
    of_characters = by_plain_loop(reader, plain, TEXTS[:1])[0][0]
    assert abs(float(of_pieces) - of_characters) > 1e-3
    sentence, _ = by_pieces.check("removal")
    assert "a word is removed with its pieces" in sentence
    assert "in 4 of 4 texts if it is the first" in sentence
    assert "model.removal=characters reads it again" in sentence

    (tmp_path / "characters").mkdir()
    sentence, warns = opened(tmp_path / "model", ROWS, tmp_path / "characters", CHARACTERS).check(
        "removal"
    )
    assert not warns
    assert "removed with its characters, and what is left is read again" in sentence
    assert "in 4 of 4 texts if it is the first" in sentence


def test_whole_words_are_the_same_pieces_either_way(tmp_path):
    reader = tokenizer(tmp_path / "model")
    network(tmp_path / "model", "Bert", vocab_size=len(reader))
    sentence, warns = opened(tmp_path / "model", ROWS, tmp_path).check("removal")
    assert not warns
    assert "with its pieces; the others are those of the text without it (in 4 texts" in sentence


PAIRS = [
    ("the film", "was very good", "no"),
    ("a plot was", "it is", "yes"),
    ("dull", "a film", "no"),
]


@pytest.mark.parametrize("attend_to", ["both", "first", "second"])
def test_a_word_of_a_pair_is_removed_from_its_own_text(tmp_path, attend_to):
    reader, plain = roberta(tmp_path / "model")
    result = opened(
        tmp_path / "model",
        PAIRS,
        tmp_path,
        CHARACTERS,
        "data.text=a",
        "data.text2=b",
        f"data.attend_to={attend_to}",
        header=("a", "b", "label"),
    )
    batch = result.data.splits["test"][[0, 1, 2]]
    with torch.no_grad():
        outputs = result.model(batch)
    distance = leave_one_out(result.model, batch, outputs).distance
    for row, (*texts, _) in enumerate(PAIRS):
        whole = library_says(plain, reader, *texts).softmax(-1)
        expected = []
        for number in {"both": (0, 1), "first": (0,), "second": (1,)}[attend_to]:
            for word in range(len(texts[number].split())):
                rest = list(texts)
                rest[number] = without(rest[number], word)
                alone = library_says(plain, reader, *rest).softmax(-1)
                expected.append(float((alone - whole).abs().sum() / 2))
        if len(expected) == 1:
            continue  # nothing is left without the only word
        measured = distance[row, batch.content[row]]
        assert_close(measured, torch.tensor(expected).double(), atol=1e-5, rtol=0)


def test_a_prompt_stays_around_what_is_read_again(tmp_path):
    model = families.prompted("gpt2", removal="characters")
    texts = ["the film was fine", "a long and dull story"]
    batch = families.batch_of(model, texts)
    model.prepare(batch)
    model = model.to(model.precision)
    with torch.no_grad():
        outputs = model(batch)
    distance = leave_one_out(model, batch, outputs).distance
    reader = families.language_tokenizer("gpt2")
    plain, _ = families.library("CausalLM", families.language_model("gpt2"))

    def says(text):
        string = PROMPT.format(text=text)
        ids = reader(string, return_tensors="pt").input_ids
        labels = [reader(string + label).input_ids[ids.shape[1]] for label in LABELS.values()]
        with torch.no_grad():
            return plain(input_ids=ids).logits[0, -1, labels].softmax(-1)

    for row, text in enumerate(texts):
        whole = says(text)
        expected = torch.stack(
            [
                prediction_distance(says(without(text, number)), whole, Task.SINGLE_LABEL)
                for number in range(len(text.split()))
            ]
        )
        assert_close(distance[row, batch.content[row]], expected.double(), atol=2e-5, rtol=0)


def test_a_run_reads_again_and_so_does_an_explanation(tmp_path):
    reader, plain = gpt2(tmp_path / "model")
    probes = "probe=[leave_one_out,swaps,faithfulness]"
    settings = run_settings(tmp_path / "model", ROWS, tmp_path, probes, *FEW_PASSES, CHARACTERS)
    directory = run(composed(*settings))
    results = read_results(directory, probe="leave_one_out")
    rows = results[results["metric"] == "leave_one_out"]
    expected = by_plain_loop(reader, plain, TEXTS)
    for example, numbers in rows.groupby("example_id"):
        measured = numbers.sort_values("step")["value"].tolist()
        assert measured == pytest.approx(expected[example], abs=1e-5)
    loaded = load_run(directory)
    batch, outputs = loaded.outputs([TEXTS[1]])
    distance = leave_one_out(loaded.classifier, batch, outputs).distance
    assert distance[0, batch.content[0]].tolist() == pytest.approx(expected[1], abs=1e-5)


def test_what_was_cut_stays_cut(tmp_path):
    reader = tokenizer(tmp_path / "model", model_max_length=8)
    plain = network(tmp_path / "model", "Bert", vocab_size=len(reader))
    text = "the film was very good and dull but fine"
    result = opened(tmp_path / "model", [(text, "no")] * 2, tmp_path, CHARACTERS)
    batch = result.data.splits["test"][[0]]
    with torch.no_grad():
        outputs = result.model(batch)
    distance = leave_one_out(result.model, batch, outputs).distance[0, batch.content[0]]
    read = " ".join(text.split()[:6])
    assert_close(
        distance,
        torch.tensor(by_plain_loop(reader, plain, [read])[0]),
        check_dtype=False,
        atol=1e-5,
        rtol=0,
    )
