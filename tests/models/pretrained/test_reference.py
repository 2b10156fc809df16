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
    library_predictions,
    network,
    opened,
    texts_of,
    tokenizer,
)
from tests.small_runs import composed

pytest.importorskip("transformers")
BROKEN = [
    (text.replace(" was", "\n\n\twas").replace(" and", "\n  and"), label) for text, label in ROWS
]


"""The same texts with line breaks in them."""


def byte_roberta(folder, **options):
    reader = byte_tokenizer(folder, **options)
    plain = network(
        folder,
        "Roberta",
        vocab_size=len(reader),
        max_position_embeddings=310,
        pad_token_id=0,
        initializer_range=0.6,
        type_vocab_size=1,
    )
    return reader, plain


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
    rows = ROWS[:24]

    result = opened(tmp_path / "model", rows, tmp_path)

    expected = library_predictions(plain, reader, texts_of(rows))
    assert_close(result.predictions(), expected, atol=1e-5, rtol=0)
    # one row is pooled, and it is the one that is shown
    assert result.model.examination.queries == "last"
    batch = result.data.splits["test"][[0, 1, 2]]
    places = result.model.piece_read(batch)
    pooled = batch.pieces[range(3), places]
    are_ends = reader.convert_ids_to_tokens(pooled) == ["[SEP]"] * 3
    assert are_ends == (piece != 3)


@pytest.mark.parametrize("rows", [ROWS, BROKEN], ids=["spaces", "line breaks"])
def test_line_breaks_reach_the_model(tmp_path, rows):
    reader, plain = byte_roberta(tmp_path / "model")
    texts = texts_of(rows)
    result = opened(tmp_path / "model", rows, tmp_path)
    expected = library_predictions(plain, reader, texts)
    assert_close(result.predictions(), expected, atol=1e-5, rtol=0)
    sentence, warns = result.check()
    assert "pieces of 120 and predictions of" in sentence
    assert not warns
    # the words are shown as ever
    split = result.data.splits["test"]
    for number, text in enumerate(texts):
        assert split.tokens(number) == text.split()


def test_space_around_a_text_and_odd_spaces_reach_the_model(tmp_path):
    reader, plain = byte_roberta(tmp_path / "model")
    texts = [
        " a film",
        "a film ",
        "a\u00a0 film\r\nwas",
        "a  \u200b film",
        "\tfilm\n\n",
    ]
    result = opened(tmp_path / "model", [(text, "no") for text in texts], tmp_path)
    expected = library_predictions(plain, reader, texts)
    assert_close(result.predictions(), expected, atol=1e-5, rtol=0)


def test_both_texts_of_a_pair_are_read_as_they_are(tmp_path):
    reader, plain = byte_roberta(tmp_path / "model")
    first_texts = texts_of(BROKEN)
    second_texts = texts_of(ROWS)
    labels = [label for _, label in ROWS]
    result = opened(
        tmp_path / "model",
        list(zip(first_texts, second_texts, labels, strict=True)),
        tmp_path,
        "data.text=a",
        "data.text2=b",
        header=("a", "b", "label"),
    )
    expected = library_predictions(plain, reader, first_texts, second_texts)
    assert_close(result.predictions(), expected, atol=1e-5, rtol=0)


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
    change = result.predictions() - library_predictions(plain, reader, texts_of(rows))
    distance = change.abs().sum(-1) / 2
    farthest = max(comparison.moved)
    assert comparison.changed == 20
    assert 0 < farthest <= float(distance.max()) + 1e-6
    assert f"{farthest:.2g} at most" in sentence


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
