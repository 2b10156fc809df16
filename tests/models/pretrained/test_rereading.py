"""A word that is removed with its characters: what is left is read as the library reads it."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from attnprobe.core.batch import Batch, Outputs
from attnprobe.importance.base import Subject
from attnprobe.importance.leave_one_out.removal import leave_one_out
from attnprobe.importance.word_removal import predictions_keeping
from attnprobe.models.base import Model
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
    for number in sorted(numbers, reverse=True):
        spans = [word.span() for word in re.finditer(r"\S+", text)]
        start, end = spans[number]
        is_last = number == len(spans) - 1
        if not is_last:
            end, _ = spans[number + 1]
        elif number > 0:
            _, start = spans[number - 1]
        text = text[:start] + text[end:]
    return text


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


@dataclass(frozen=True)
class Read:
    """Texts in one batch as a model reads them, and the library alone.

    Attributes:
        says: the library's probabilities of a text, or of the texts of a pair.
    """

    model: Model
    batch: Batch
    outputs: Outputs
    says: Callable[..., Tensor]

    @classmethod
    def of(cls, result, says):
        """All texts of a checkpoint that is opened."""
        split = result.data.splits["test"]
        batch = split[list(range(len(split)))]
        with torch.no_grad():
            outputs = result.model(batch)
        return cls(result.model, batch, outputs, says)

    def removals(self, row):
        """TVD without each word of a text, as ours has it."""
        removals = leave_one_out(self.model, self.batch, self.outputs)
        return removals.distance[row, self.batch.content[row]].tolist()

    def is_whole(self, row, text):
        """Whether each of its words is a unit: two that share a piece are one."""
        return int(self.batch.content[row].sum()) == len(text.split())


def distance(says, whole, shortened):
    """TVD of the library's predictions of two texts, or pairs."""
    change = says(*shortened) - says(*whole)
    return change.abs().sum().item() / 2


def removals_by_loop(says, text):
    """TVD without each word of a text, as the library has it."""
    words = range(len(text.split()))
    return [distance(says, [text], [without(text, number)]) for number in words]


def library(plain, reader):
    """The library's probabilities."""

    def says(*texts):
        return library_says(plain, reader, *texts).softmax(-1)

    return says


@pytest.fixture(params=CHECKPOINTS)
def reread(request, tmp_path):
    """Texts of which a model reads again what is left."""
    reader, plain = CHECKPOINTS[request.param](tmp_path / "model")
    result = opened(tmp_path / "model", ROWS, tmp_path, CHARACTERS)
    return Read.of(result, library(plain, reader))


@pytest.mark.parametrize(
    ("text", "numbers", "expected"),
    [
        (TEXTS[0], [0], "film was very good and dull"),
        (TEXTS[1], [1], "  a\twas  the plot \n"),
        (TEXTS[1], [4], "  a\tfilm\n\nwas  the \n"),
        (TEXTS[1], [3, 4], "  a\tfilm\n\nwas \n"),
    ],
)
def test_the_rule_of_what_goes_with_a_word(text, numbers, expected):
    assert without(text, *numbers) == expected


def test_leave_one_out_is_that_of_a_plain_loop(reread):
    for row, text in enumerate(TEXTS):
        if reread.is_whole(row, text):
            expected = removals_by_loop(reread.says, text)
            assert reread.removals(row) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["gpt2", "roberta", "llama"])
def test_equal_neighbours_with_other_space_behind_them_are_not_one_another(kind, tmp_path):
    """Without the first of two equal words the tab stays, without the second the space."""
    text = "the film film\tmusic was"
    reader, plain = CHECKPOINTS[kind](tmp_path / "model")
    rows = [(text, "no"), ("the film film was", "yes")]
    read = Read.of(opened(tmp_path / "model", rows, tmp_path, CHARACTERS), library(plain, reader))
    expected = removals_by_loop(read.says, text)
    assert read.removals(0) == pytest.approx(expected, abs=1e-5)
    assert abs(expected[1] - expected[2]) > 1e-4
    _, first, second, _ = read.removals(1)  # the same text without either
    assert first == second


GONE = [(0, 3, 6), (0, 1, 4), (1,), (0,)]


"""Words of each text that go together."""


def test_several_words_that_go_are_no_longer_in_the_string(reread):
    whole_rows = [row for row, text in enumerate(TEXTS) if reread.is_whole(row, text)]
    assert len(whole_rows) >= 3
    keep = reread.batch.content.clone()
    for row in whole_rows:
        places = [1 + word for word in GONE[row]]
        keep[row, places] = False
    readout = reread.model.readout(reread.batch, reread.outputs)
    subject = Subject(reread.model, reread.batch, reread.outputs, readout)

    predictions = predictions_keeping(subject, keep, "delete")

    for row in whole_rows:
        expected = reread.says(without(TEXTS[row], *GONE[row]))
        assert_close(predictions[row], expected, atol=1e-5, rtol=0)


IF_FIRST = "in 4 of 4 texts if it is the first"


def test_pieces_that_stay_are_another_text_of_a_byte_level_tokenizer(tmp_path):
    """What the option is for: without the first word the next one keeps its space."""
    reader, plain = gpt2(tmp_path / "model")
    result = opened(tmp_path / "model", ROWS, tmp_path)
    texts = Read.of(result, library(plain, reader))
    by_pieces, *_ = texts.removals(0)
    by_characters, *_ = removals_by_loop(texts.says, TEXTS[0])
    assert abs(by_pieces - by_characters) > 1e-3
    sentence, _ = result.check("removal")
    assert "a word is removed with its pieces" in sentence
    assert IF_FIRST in sentence
    assert "model.removal=characters reads it again" in sentence


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


def test_a_byte_level_tokenizer_that_reads_again_warns_of_nothing(tmp_path):
    gpt2(tmp_path / "model")
    result = opened(tmp_path / "model", ROWS, tmp_path, CHARACTERS)
    sentence, warns = result.check("removal")
    assert not warns
    assert "removed with its characters, and what is left is read again" in sentence
    assert IF_FIRST in sentence


ATTENDED = {"both": [0, 1], "first": [0], "second": [1]}


"""The texts of a pair whose words are removed."""


def removals_of_pair(says, pair, attended):
    """TVD without each word of a pair, as the library has it."""
    distances = []
    for number in attended:
        for word in range(len(pair[number].split())):
            shortened = list(pair)
            shortened[number] = without(pair[number], word)
            distances.append(distance(says, pair, shortened))
    return distances


@pytest.mark.parametrize("attend_to", ATTENDED)
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
    texts = Read.of(result, library(plain, reader))
    for row, (*pair, _) in enumerate(PAIRS):
        expected = removals_of_pair(texts.says, pair, ATTENDED[attend_to])
        if len(expected) > 1:  # nothing is left without the only word
            assert texts.removals(row) == pytest.approx(expected, abs=1e-5)


def test_a_prompt_stays_around_what_is_read_again():
    model = families.prompted("gpt2", removal="characters")
    strings = ["the film was fine", "a long and dull story"]
    batch = families.batch_of(model, strings)
    model.prepare(batch)
    model = model.to(model.precision)
    reader = families.language_tokenizer("gpt2")
    plain, _ = families.library("CausalLM", families.language_model("gpt2"))

    @torch.no_grad()
    def says(text):
        string = PROMPT.format(text=text)
        ids = reader(string, return_tensors="pt").input_ids
        length = ids.shape[1]
        labels = [reader(string + label).input_ids[length] for label in LABELS.values()]
        return plain(input_ids=ids).logits[0, -1, labels].softmax(-1)

    with torch.no_grad():
        texts = Read(model, batch, model(batch), says)
    for row, string in enumerate(strings):
        expected = removals_by_loop(texts.says, string)
        assert texts.removals(row) == pytest.approx(expected, abs=2e-5)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run that reads again, and the library's probabilities."""
    folder = tmp_path_factory.mktemp("run")
    reader, plain = gpt2(folder / "model")
    probes = "probe=[leave_one_out,swaps,faithfulness]"
    settings = run_settings(folder / "model", ROWS, folder, probes, *FEW_PASSES, CHARACTERS)
    return run(composed(*settings)), library(plain, reader)


def test_a_run_reads_again(finished):
    directory, says = finished
    results = read_results(directory, probe="leave_one_out")
    distances = results[results["metric"] == "leave_one_out"].sort_values("step")
    for example, rows in distances.groupby("example_id"):
        expected = removals_by_loop(says, TEXTS[example])
        assert rows["value"].tolist() == pytest.approx(expected, abs=1e-5)


def test_a_run_that_is_loaded_reads_again(finished):
    directory, says = finished
    loaded = load_run(directory)
    batch, outputs = loaded.outputs([TEXTS[1]])
    texts = Read(loaded.classifier, batch, outputs, says)
    expected = removals_by_loop(says, TEXTS[1])
    assert texts.removals(0) == pytest.approx(expected, abs=1e-5)


def test_what_was_cut_stays_cut(tmp_path):
    reader = tokenizer(tmp_path / "model", model_max_length=8)
    plain = network(tmp_path / "model", "Bert", vocab_size=len(reader))
    text = "the film was very good and dull but fine"
    result = opened(tmp_path / "model", [(text, "no")] * 2, tmp_path, CHARACTERS)
    texts = Read.of(result, library(plain, reader))
    part_read = " ".join(text.split()[:6])
    expected = removals_by_loop(texts.says, part_read)
    assert texts.removals(0) == pytest.approx(expected, abs=1e-5)
