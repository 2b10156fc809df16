"""Special tokens that a text spells out, pieces of several words, and where a text is cut."""

import json

import pytest
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.results.table import read_examples
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained.families import run_settings
from tests.models.pretrained.whole_words import (
    ROWS,
    byte_tokenizer,
    library_predictions,
    library_says,
    network,
    opened,
    texts_of,
    tokenizer,
)
from tests.small_runs import FEW_PASSES, composed

pytest.importorskip("transformers")


def spelled_out(every, token="[SEP]"):
    """The rows, each `every`th of which spells a special token out."""
    rows = []
    for number, (text, label) in enumerate(ROWS, 1):
        spelling = f"film {token}" if number % every == 0 else "film"
        rows.append((text.replace("film", spelling), label))
    return rows


def bart(folder):
    reader = tokenizer(folder, eos_token="[SEP]", bos_token="[CLS]")
    return reader, network(folder, "Bart", vocab_size=len(reader))


@pytest.mark.parametrize("every", [7, 101])
def test_a_text_that_a_network_cannot_read_among_others_is_named_with_its_token(tmp_path, every):
    bart(tmp_path / "model")
    message = (
        r"text \d+ holds the special token '\[SEP\]', which its network cannot read among .* "
        r"expected model.special_tokens=characters, or that such rows are left out"
    )
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "model", spelled_out(every), tmp_path)


def test_its_characters_are_read_where_that_is_asked_for(tmp_path):
    reader = byte_tokenizer(tmp_path / "model")
    plain = network(
        tmp_path / "model",
        "Bart",
        vocab_size=len(reader),
        max_position_embeddings=310,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        forced_eos_token_id=2,
    )
    rows = spelled_out(7, "</s>")

    result = opened(tmp_path / "model", rows, tmp_path, "model.special_tokens=characters")

    reader.split_special_tokens = True
    expected = library_predictions(plain, reader, texts_of(rows))
    assert_close(result.predictions(), expected, atol=1e-5, rtol=0)
    sentence, warns = result.check()
    assert warns
    assert "17 of 120 texts" in sentence
    assert "read as characters (model.special_tokens)" in sentence


@pytest.mark.parametrize(
    ("kind", "post"),
    [
        ("Bert", "[CLS] $A [SEP]"),
        ("Llama", "$A [SEP]"),
    ],
)
def test_a_special_token_is_read_as_the_library_reads_it_and_counted(tmp_path, kind, post):
    reader = tokenizer(tmp_path / "model", post=post, eos_token="[SEP]")
    plain = network(tmp_path / "model", kind, vocab_size=len(reader), pad_token_id=0)
    rows = spelled_out(7)

    result = opened(tmp_path / "model", rows, tmp_path)

    expected = library_predictions(plain, reader, texts_of(rows))
    assert_close(result.predictions(), expected, atol=1e-5, rtol=0)
    sentence, warns = result.check("special tokens in texts")
    assert warns
    assert "'[SEP]' in 17" in sentence
    _, library_warns = result.check()
    assert not library_warns
    split = result.data.splits["test"]
    assert split.tokens(6)[2] == "[SEP]"


JOINED = ["film was", "very good", "very bad"]


@pytest.fixture(scope="module")
def superwords(tmp_path_factory):
    """A run whose tokenizer has pieces of two words."""
    folder = tmp_path_factory.mktemp("superwords")
    reader = tokenizer(folder / "model", added=JOINED)
    plain = network(folder / "model", "Bert", vocab_size=len(reader))
    probes = "probe=[permutation,leave_one_out,swaps]"
    settings = run_settings(folder / "model", ROWS[:24], folder, probes, *FEW_PASSES)
    return run(composed(*settings)), reader, plain


def test_two_words_of_one_piece_are_one_unit(superwords):
    directory, reader, plain = superwords
    for example in read_examples(directory).itertuples():
        text, _ = ROWS[example.example_id]
        pieces = reader(text, add_special_tokens=False).input_ids
        joined = {word for word in example.tokens if " " in word}
        expected = library_says(plain, reader, text).softmax(-1).double()
        assert " ".join(example.tokens) == text
        assert len(example.tokens) == len(example.attention) == len(pieces)
        assert "film was" in joined
        assert joined <= set(JOINED)
        assert_allclose(example.probability, expected, atol=1e-5)


def test_an_explanation_has_the_same_units(superwords):
    directory, _, _ = superwords
    explanation = load_run(directory).explain(["the film was very bad and dull"])
    assert list(explanation["tokens"][0]) == ["the", "film was", "very bad", "and", "dull"]


def test_words_of_one_piece_are_counted_and_a_text_that_ends_so_is_not_cut(tmp_path):
    reader = tokenizer(tmp_path / "model", added=JOINED)
    network(tmp_path / "model", "Bert", vocab_size=len(reader))
    rows = [(f"the dull {unit}", "no") for unit in JOINED] * 4
    result = opened(tmp_path / "model", rows, tmp_path)
    counts = result.data.counts["test"]
    sentence, _ = result.check("words of one piece")
    assert counts["units of several words"] == 12
    assert counts["cut at the model's longest text"] == 0
    assert counts["words without a piece"] == 0
    assert "12 times several words share a piece" in sentence


def test_marks_of_two_words_of_one_piece_are_joined(tmp_path):
    """A rationale is marked where either word is, and numbers per word are added."""
    reader = tokenizer(tmp_path / "model", added=JOINED)
    network(tmp_path / "model", "Bert", vocab_size=len(reader))
    row = {
        "text": "the film was very bad and dull",
        "label": "no",
        "why": [0, 0, 1, 0, 0, 0, 1],
        "score": [1, 2, 4, 8, 16, 32, 64],
    }
    path = tmp_path / "rows.jsonl"
    path.write_text(4 * (json.dumps(row) + "\n"))

    result = opened(
        tmp_path / "model",
        [],
        tmp_path,
        f"data.path={path}",
        "data.rationale=why",
        "+data.per_word.score=score",
    )

    batch = result.data.splits["test"][[0]]
    rationale = batch.rationale[batch.content]
    score = batch.extra["score"][batch.content]
    assert rationale.tolist() == [False, True, False, False, True]
    assert score.tolist() == [1, 6, 24, 32, 64]


@pytest.mark.parametrize(
    ("side", "stays"),
    [
        ("left", slice(-8, None)),
        ("right", slice(8)),
    ],
    ids=["left", "right"],
)
def test_words_that_are_cut_are_counted_on_the_side_where_they_are_cut(tmp_path, side, stays):
    reader = tokenizer(tmp_path / "model", truncation_side=side, model_max_length=10)
    plain = network(tmp_path / "model", "Bert", vocab_size=len(reader))
    rows = [(f"{text} {text}", label) for text, label in ROWS[:12]]
    texts = texts_of(rows)
    words = [text.split() for text in texts]

    result = opened(tmp_path / "model", rows, tmp_path)

    counts = result.data.counts["test"]
    assert counts["cut at the model's longest text"] == 12
    assert counts["words after the cut"] == sum(len(text) - 8 for text in words)
    assert counts["words without a piece"] == 0
    split = result.data.splits["test"]
    assert split.tokens(3) == words[3][stays]
    expected = library_predictions(plain, reader, texts)
    assert_close(result.predictions(), expected, atol=1e-5, rtol=0)


def test_an_invisible_word_at_the_end_is_not_cut(tmp_path):
    reader = byte_tokenizer(tmp_path / "model")
    network(tmp_path / "model", "Roberta", vocab_size=len(reader), max_position_embeddings=310)
    result = opened(tmp_path / "model", [("a film\n", "no"), ("a film \u200b", "no")], tmp_path)
    assert result.data.counts["test"]["words after the cut"] == 0
