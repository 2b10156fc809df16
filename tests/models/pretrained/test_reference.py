"""What a model reads and predicts is what its own library reads and predicts of the same cells."""

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.models.pretrained import reference
from attnprobe.models.pretrained.reference import copy_sharing_weights
from attnprobe.results.directory import RunDirectory
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
from tests.small_runs import composed

pytest.importorskip("transformers")
BROKEN = [
    (text.replace(" was", "\n\n\twas").replace(" and", "\n  and"), label) for text, label in ROWS
]


def byte_roberta(folder, **options):
    reader = byte_tokenizer(folder, **options)
    settings = {"vocab_size": len(reader), "max_position_embeddings": 310, "pad_token_id": 0}
    return reader, network(folder, "Roberta", initializer_range=0.6, type_vocab_size=1, **settings)


def expected_of(reader, plain, texts):
    return torch.stack([library_says(plain, reader, text) for text in texts]).double()


PADDINGS = {
    "none in config.json": ({"pad_token": None, "eos_token": "[SEP]"}, None),
    "the end token": ({"pad_token": "[SEP]", "eos_token": "[SEP]"}, 3),
    "another one than the tokenizer's": ({"eos_token": "[SEP]"}, 3),
    "out of the vocabulary": ({"eos_token": "[SEP]"}, -1),
    "on the left": ({"padding_side": "left", "eos_token": "[SEP]"}, 0),
}


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
@pytest.mark.parametrize("padding", PADDINGS)
def test_a_decoder_pools_the_piece_that_its_library_pools(tmp_path, kind, padding):
    options, piece = PADDINGS[padding]
    reader = tokenizer(tmp_path / "model", post="$A [SEP]", **options)
    plain = network(tmp_path / "model", kind, vocab_size=len(reader), pad_token_id=piece)
    result = opened(tmp_path / "model", ROWS[:24], tmp_path)
    expected = expected_of(reader, plain, [text for text, _ in ROWS[:24]])
    assert_close(result.logits().softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)
    # one row is pooled, and it is the one that is shown
    assert result.model.examination.queries == "last"
    batch = result.data.splits["test"][[0, 1, 2]]
    is_end = reader.convert_ids_to_tokens(
        batch.pieces[torch.arange(3), result.model.piece_read(batch)]
    )
    assert (is_end == ["[SEP]"] * 3) == (piece != 3)


@pytest.mark.parametrize("rows", [ROWS, BROKEN], ids=["spaces", "line breaks"])
def test_line_breaks_reach_the_model(tmp_path, rows):
    reader, plain = byte_roberta(tmp_path / "model")
    texts = [text for text, _ in rows]
    result = opened(tmp_path / "model", rows, tmp_path)
    expected = expected_of(reader, plain, texts)
    assert_close(result.logits().softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)
    sentence, warns = result.check()
    assert "pieces of 120 and predictions of" in sentence
    assert not warns
    # the words are shown as ever
    part = result.data.splits["test"]
    assert [part.tokens(number) for number in range(120)] == [text.split() for text in texts]


def test_space_around_a_text_and_odd_spaces_reach_the_model(tmp_path):
    reader, plain = byte_roberta(tmp_path / "model")
    texts = [" a film", "a film ", "a\u00a0 film\r\nwas", "a  \u200b film", "\tfilm\n\n"]
    result = opened(tmp_path / "model", [(text, "no") for text in texts], tmp_path)
    expected = expected_of(reader, plain, texts)
    assert_close(result.logits().softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)


def test_both_texts_of_a_pair_are_read_as_they_are(tmp_path):
    reader, plain = byte_roberta(tmp_path / "model")
    pairs = [(first, second[0], label) for (first, label), second in zip(BROKEN, ROWS, strict=True)]
    result = opened(
        tmp_path / "model",
        pairs,
        tmp_path,
        "data.text=a",
        "data.text2=b",
        header=("a", "b", "label"),
    )
    expected = torch.stack([library_says(plain, reader, *pair[:2]) for pair in pairs]).double()
    assert_close(result.logits().softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["data.clean=[nonword]"], "data.clean, token_rules or max_tokens"),
        (["data.token_rules=[digits]"], "data.clean, token_rules or max_tokens"),
        (["data.max_tokens=4"], "data.clean, token_rules or max_tokens"),
        (["model.max_pieces=20"], "cut at 20 pieces (model.max_pieces)"),
    ],
)
def test_what_a_setting_changes_is_said_with_how_far_predictions_move(tmp_path, overrides, reason):
    reader, plain = byte_roberta(tmp_path / "model")
    rows = [(f"{text} 12!", label) for text, label in BROKEN[:20]]
    result = opened(tmp_path / "model", rows, tmp_path, *overrides)
    sentence, warns = result.check()
    assert warns
    assert "20 of 20 texts (100 %) are not read as transformers reads their cells" in sentence
    assert reason in sentence
    comparison = result.model.comparison
    assert comparison.changed == 20
    moved = result.logits().softmax(-1) - expected_of(
        reader, plain, [text for text, _ in rows]
    ).softmax(-1)
    distances = moved.abs().sum(-1) / 2
    assert 0 < max(comparison.moved) <= float(distances.max()) + 1e-6
    assert f"{max(comparison.moved):.2g} at most" in sentence


def test_a_manifest_and_a_terminal_say_what_was_compared(tmp_path, capsys):
    byte_roberta(tmp_path / "model")
    settings = run_settings(tmp_path / "model", BROKEN[:12], tmp_path, "probe=[permutation]")
    directory = run(composed(*settings))
    facts = RunDirectory(directory).manifest()["model_facts"]["library"]
    assert facts["texts_read"] == 12
    assert facts["largest_difference"] < 1e-5
    sentence = f"predictions of {facts['texts']} texts are those of transformers"
    assert sentence in " ".join(capsys.readouterr().out.split())


def test_pieces_that_are_not_the_librarys_are_refused_with_the_first_that_differs(
    tmp_path, monkeypatch
):
    byte_roberta(tmp_path / "model")
    monkeypatch.setattr(
        "attnprobe.data.passages.Passage.raw", property(lambda passage: passage.string + "!")
    )
    message = r"text 0 \('the film\\n\\n\\twas.*piece \d+ is '</s>' here and '!' there"
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "model", BROKEN[:3], tmp_path)


def test_predictions_that_are_not_the_librarys_are_refused(tmp_path, monkeypatch):
    byte_roberta(tmp_path / "model")
    logits = reference.Library.logits
    monkeypatch.setattr(
        reference.Library, "logits", lambda *arguments: logits(*arguments) + torch.eye(2)[0] / 100
    )
    with pytest.raises(UserError, match=r"of text 0 .* transformers predicts 0\.\d+, .* and here"):
        opened(tmp_path / "model", BROKEN[:3], tmp_path)


def test_a_copy_shares_weights_and_nothing_else(tmp_path):
    _, plain = byte_roberta(tmp_path / "model")
    copied = copy_sharing_weights(plain)
    assert [*map(id, plain.parameters())] == [*map(id, copied.parameters())]
    copied.config.pad_token_id = 99
    copied.classifier.out_proj = torch.nn.Linear(32, 5)
    assert plain.config.pad_token_id == 0
    assert plain.classifier.out_proj.out_features == 2
