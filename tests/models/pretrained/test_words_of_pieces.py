"""Special tokens that a text spells out, pieces of several words, and where a text is cut."""

import pytest
import torch
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
    library_says,
    network,
    opened,
    tokenizer,
)
from tests.small_runs import FEW_PASSES, composed

pytest.importorskip("transformers")


def spelled_out(every, token="[SEP]"):
    """The rows, each `every`th of which spells a special token out."""
    return [
        (text.replace("film", f"film {token}") if number % every == every - 1 else text, label)
        for number, (text, label) in enumerate(ROWS)
    ]


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
    ends = {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    plain = network(
        tmp_path / "model",
        "Bart",
        vocab_size=len(reader),
        max_position_embeddings=310,
        **ends | {"forced_eos_token_id": 2},
    )
    rows = spelled_out(7, "</s>")
    result = opened(tmp_path / "model", rows, tmp_path, "model.special_tokens=characters")
    expected = []
    for text, _ in rows:
        encoding = reader(
            text, return_tensors="pt", return_token_type_ids=False, split_special_tokens=True
        )
        with torch.no_grad():
            expected.append(plain.double()(**encoding).logits[0])
    assert_close(result.logits().softmax(-1), torch.stack(expected).softmax(-1), atol=1e-5, rtol=0)
    sentence, warns = result.check()
    assert warns
    assert "17 of 120 texts" in sentence
    assert "read as characters (model.special_tokens)" in sentence


@pytest.mark.parametrize("kind", ["Bert", "Llama"])
def test_a_special_token_is_read_as_the_library_reads_it_and_counted(tmp_path, kind):
    post = "[CLS] $A [SEP]" if kind == "Bert" else "$A [SEP]"
    reader = tokenizer(tmp_path / "model", post=post, eos_token="[SEP]")
    plain = network(tmp_path / "model", kind, vocab_size=len(reader), pad_token_id=0)
    rows = spelled_out(7)
    result = opened(tmp_path / "model", rows, tmp_path)
    expected = torch.stack([library_says(plain, reader, text) for text, _ in rows]).double()
    assert_close(result.logits().softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)
    sentence, warns = result.check("special tokens in texts")
    assert warns
    assert "'[SEP]' in 17" in sentence
    assert not result.check()[1]
    assert result.data.splits["test"].tokens(6)[2] == "[SEP]"


JOINED = ["film was", "very good", "very bad"]


@pytest.fixture(scope="module")
def superwords(tmp_path_factory):
    """A run whose tokenizer has pieces of two words."""
    folder = tmp_path_factory.mktemp("superwords")
    reader = tokenizer(folder / "model", added=JOINED)
    plain = network(folder / "model", "Bert", vocab_size=len(reader))
    probes = "probe=[permutation,leave_one_out,swaps]"
    settings = run_settings(folder / "model", ROWS, folder, probes, *FEW_PASSES)
    return run(composed(*settings)), reader, plain


def test_two_words_of_one_piece_are_one_unit(superwords):
    directory, reader, plain = superwords
    examples = read_examples(directory)
    for row in examples.itertuples():
        text = ROWS[row.example_id][0]
        assert " ".join(row.tokens) == text
        joined = {word for word in row.tokens if " " in word}
        assert "film was" in joined <= {*JOINED}
        assert len(row.tokens) == len(row.attention) == len(reader(text)["input_ids"]) - 2
        expected = library_says(plain, reader, text).softmax(-1).double().numpy()
        assert_allclose(row.probability, expected, atol=1e-5)


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
    assert counts["units of several words"] == 12
    assert counts["cut at the model's longest text"] == counts["words without a piece"] == 0
    assert "12 times several words share a piece" in result.check("words of one piece")[0]


def test_marks_of_two_words_of_one_piece_are_joined(tmp_path):
    """A rationale is marked where either word is, and numbers per word are added."""
    reader = tokenizer(tmp_path / "model", added=JOINED)
    network(tmp_path / "model", "Bert", vocab_size=len(reader))
    rows = [
        (
            "the film was very bad and dull",
            "no",
            "[0, 0, 1, 0, 0, 0, 1]",
            "[1, 2, 4, 8, 16, 32, 64]",
        )
    ] * 4
    path = tmp_path / "rows.jsonl"
    lines = [
        f'{{"text": "{text}", "label": "{label}", "why": {why}, "score": {score}}}\n'
        for text, label, why, score in rows
    ]
    path.write_text("".join(lines))
    result = opened(
        tmp_path / "model",
        [],
        tmp_path,
        f"data.path={path}",
        "data.rationale=why",
        "+data.per_word.score=score",
    )
    batch = result.data.splits["test"][[0]]
    content = batch.content[0]
    assert batch.rationale[0, content].tolist() == [False, True, False, False, True]
    assert batch.extra["score"][0, content].tolist() == [1, 6, 24, 32, 64]


@pytest.mark.parametrize("side", ["left", "right"])
def test_words_that_are_cut_are_counted_on_the_side_where_they_are_cut(tmp_path, side):
    reader = tokenizer(tmp_path / "model", truncation_side=side, model_max_length=10)
    plain = network(tmp_path / "model", "Bert", vocab_size=len(reader))
    rows = [(" ".join([text] * 2), label) for text, label in ROWS[:12]]
    result = opened(tmp_path / "model", rows, tmp_path)
    words = [text.split() for text, _ in rows]
    counts = result.data.counts["test"]
    assert counts["cut at the model's longest text"] == 12
    assert counts["words after the cut"] == sum(map(len, words)) - 12 * 8
    assert counts["words without a piece"] == 0
    part = result.data.splits["test"]
    stays = slice(-8, None) if side == "left" else slice(8)
    assert part.tokens(3) == words[3][stays]
    expected = torch.stack([library_says(plain, reader, text) for text, _ in rows]).double()
    assert_close(result.logits().softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)


def test_an_invisible_word_at_the_end_is_not_cut(tmp_path):
    reader = byte_tokenizer(tmp_path / "model")
    network(tmp_path / "model", "Roberta", vocab_size=len(reader), max_position_embeddings=310)
    result = opened(tmp_path / "model", [("a film\n", "no"), ("a film \u200b", "no")], tmp_path)
    assert result.data.counts["test"]["words after the cut"] == 0
