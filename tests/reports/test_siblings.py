"""Cases of the kinds of `index.py` that nobody has reported: what a model reads and predicts."""

import itertools
import json

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from tests.models.pretrained import families
from tests.models.pretrained.test_unseen import DECODER, ENDS, MODERNBERT, WINDOWS
from tests.models.pretrained.whole_words import (
    ROWS,
    byte_tokenizer,
    library_says,
    network,
    opened,
    tokenizer,
)

transformers = pytest.importorskip("transformers")
FEW = ROWS[:12]


def assert_agrees(result, plain, reader, texts):
    """Assert that every prediction is the library's of that text, or pair, alone."""
    expected = torch.stack([library_says(plain, reader, *text) for text in texts]).double()
    assert_close(result.logits().softmax(-1), expected.softmax(-1), atol=1e-5, rtol=0)


def alone(rows):
    return [(text,) for text, _ in rows]


# eos is padding


@pytest.mark.parametrize("kind", ["Llama", "Mistral"])
def test_a_text_that_ends_in_the_padding_token_is_pooled_as_by_the_library(tmp_path, kind):
    reader = tokenizer(tmp_path / "model", post="[CLS] $A", eos_token="[SEP]")
    plain = network(tmp_path / "model", kind, vocab_size=len(reader), **DECODER)
    rows = []
    for number, (text, label) in enumerate(FEW):
        padding = " [PAD]" * (number % 3)
        rows.append((text + padding, label))
    result = opened(tmp_path / "model", rows, tmp_path)
    assert_agrees(result, plain, reader, alone(rows))
    batch = result.data.splits["test"][[0, 1, 2]]
    pooled = batch.pieces[torch.arange(3), result.model.piece_read(batch)]
    assert (pooled != 0).all()


def test_a_decoder_that_cuts_and_pads_on_the_left_pools_as_its_library(tmp_path):
    sides = {
        "padding_side": "left",
        "truncation_side": "left",
        "model_max_length": 8,
    }
    reader = tokenizer(tmp_path / "model", post="$A [SEP]", eos_token="[SEP]", **sides)
    plain = network(tmp_path / "model", "Llama", vocab_size=len(reader), pad_token_id=3)
    plain.to(torch.bfloat16).save_pretrained(tmp_path / "model")
    read = transformers.AutoModelForSequenceClassification.from_pretrained
    rows = [(f"{text} but it was {text}", label) for text, label in FEW]
    result = opened(tmp_path / "model", rows, tmp_path)
    stored = read(tmp_path / "model", dtype=torch.float32).eval()
    assert_agrees(result, stored, reader, alone(rows))


# line breaks

MARKS = [
    "the\tfilm",
    " the  film ",
    "\r\nthe film\n\nwas",
    "e\u0301t\u00e9 the\u200b film\u00a0was",
]


@pytest.mark.parametrize("family", ["words", "spaces"])
def test_spaces_and_marks_reach_a_tokenizer_of_any_family(tmp_path, family):
    reader = families.tokenizer() if family == "words" else families.language_tokenizer("llama")
    reader.save_pretrained(tmp_path / "model")
    kind = "Bert" if family == "words" else "Llama"
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    plain = network(tmp_path / "model", kind, vocab_size=len(reader), **ends)
    rows = list(zip(MARKS, itertools.cycle(["no", "yes"]), strict=False))
    result = opened(tmp_path / "model", rows, tmp_path)
    assert_agrees(result, plain, reader, alone(rows))
    assert not result.check()[1]


ASKED = (
    'model.prompt="Review: {text}\\nSentiment:"',
    'model.labels={no: " bad", yes: " good"}',
)


def asked(string):
    """What a language model of the library says after this string."""
    reader = families.language_tokenizer("gpt2")
    plain, _ = families.library("CausalLM", families.language_model("gpt2"))
    labels = [reader(string + label).input_ids[-1] for label in (" bad", " good")]
    encoding = reader(string, return_tensors="pt")
    with torch.no_grad():
        [logits] = plain(**encoding).logits
    return logits[-1, labels].softmax(-1)


def assert_agrees_where_asked(rows, output):
    result = opened(families.language_model("gpt2"), rows, output, *ASKED)
    for number, (text, _) in enumerate(rows):
        expected = asked(families.PROMPT.format(text=text)).double()
        assert_close(result.logits().softmax(-1)[number], expected, atol=1e-5, rtol=0)


def test_a_line_break_in_a_text_reaches_a_prompted_model(tmp_path):
    assert_agrees_where_asked([("the film\n\nwas\tfine ", "no"), (" a  story", "yes")], tmp_path)


# special token in a text


def test_an_end_token_in_a_text_does_not_end_a_prompt(tmp_path):
    assert_agrees_where_asked(
        [("the film</s> was fine", "no"), ("<s>a story</s>", "yes")], tmp_path
    )


def test_a_special_token_in_the_second_text_of_a_pair_is_read_as_one(tmp_path):
    reader = byte_tokenizer(tmp_path / "model")
    settings = {
        "vocab_size": len(reader),
        "max_position_embeddings": 310,
        "pad_token_id": 0,
    }
    plain = network(tmp_path / "model", "Roberta", type_vocab_size=1, **settings)
    rows = [("the film", "was </s> good", "no"), ("a <mask> plot", "dull</s>", "yes")]
    result = opened(
        tmp_path / "model",
        rows,
        tmp_path,
        "data.text=a",
        "data.text2=b",
        header=("a", "b", "label"),
    )
    assert_agrees(result, plain, reader, [row[:2] for row in rows])
    sentence, warns = result.check("special tokens in texts")
    assert warns
    assert "'</s>' in 2" in sentence


# piece of two words


def test_bytes_that_are_merged_across_spaces_are_one_unit(tmp_path):
    """As SuperBPE has them: no word border stops a merge."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["by the way it was dull", "by the way it was fine"] * 20, trainer)
    reader = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )
    reader.save_pretrained(tmp_path / "model")
    sizes = {
        "n_embd": 32,
        "n_layer": 2,
        "n_head": 2,
        "pad_token_id": 0,
    }
    plain = network(tmp_path / "model", "GPT2", vocab_size=len(reader), **sizes)
    rows = [
        ("by the way it was dull", "no"),
        ("it was by the way", "yes"),
        ("dull it was", "no"),
    ]
    result = opened(tmp_path / "model", rows, tmp_path)
    assert_agrees(result, plain, reader, alone(rows))
    part = result.data.splits["test"]
    units = [part.tokens(number) for number in range(3)]
    assert [" ".join(words) for words in units] == [text for text, _ in rows]
    assert any(" " in unit for words in units for unit in words)


def test_words_of_one_piece_in_the_second_text_of_a_pair_are_one_unit(tmp_path):
    reader = tokenizer(tmp_path / "model", added=["film was", "very good"])
    plain = network(tmp_path / "model", "Bert", vocab_size=len(reader))
    rows = [("the plot", "a film was very good", "no"), ("it is", "the film was dull", "yes")]
    result = opened(
        tmp_path / "model",
        rows,
        tmp_path,
        "data.text=a",
        "data.text2=b",
        header=("a", "b", "label"),
    )
    for number, (first, second, _) in enumerate(rows):
        encoding = reader(first, second, return_tensors="pt")
        with torch.no_grad():
            expected = plain.double()(**encoding).logits[0].softmax(-1)
        assert_close(result.logits().softmax(-1)[number], expected, atol=1e-5, rtol=0)
    assert result.data.splits["test"].tokens(0) == ["the", "plot", "a", "film was", "very good"]


# two tables of labels


def labelled(folder, names):
    reader = tokenizer(folder)
    plain = network(folder, "Bert", vocab_size=len(reader))
    path = folder / "config.json"
    tables = {"id2label": names, "label2id": {name: int(n) for n, name in names.items()}}
    path.write_text(json.dumps(json.loads(path.read_text()) | tables))
    return reader, plain


def test_numbers_for_names_in_another_order_are_names(tmp_path):
    """Output 0 is called 1: the data's 1 is that output."""
    reader, plain = labelled(tmp_path / "model", {"0": "1", "1": "0"})
    rows = [(text, str(number % 2)) for number, (text, _) in enumerate(FEW)]
    result = opened(tmp_path / "model", rows, tmp_path)
    assert result.model.order == [1, 0]
    (first_text, _), *_ = FEW
    outputs = library_says(plain, reader, first_text).double()
    logits, *_ = result.logits()
    assert_close(logits, outputs.flip(0), atol=1e-5, rtol=0)


def test_two_names_for_one_class_of_the_data_are_refused(tmp_path):
    labelled(tmp_path / "model", {"0": "very good", "1": "Very_Good"})
    rows = [(text, "very-good") for text, _ in FEW]
    message = "its labels are very good, Very_Good, those of the data very-good"
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "model", rows, tmp_path)


# outside the window


def test_a_layer_that_sees_all_below_one_with_a_window_has_all_words(tmp_path):
    reader = tokenizer(tmp_path / "model", model_max_length=128)
    options = MODERNBERT | {"classifier_pooling": "cls"}
    network(tmp_path / "model", "ModernBert", vocab_size=len(reader), **options)
    rows = [(" ".join([text] * 3), label) for text, label in FEW]
    result = opened(tmp_path / "model", rows, tmp_path, "model.layer=0")  # the global one
    batch = result.data.splits["test"][[0, 1]]
    outputs = result.model(batch)
    assert outputs.content.equal(batch.content)
    assert not outputs.unseen.any()


def test_of_a_pair_the_text_outside_the_window_is_not_seen(tmp_path):
    """The first text ends before the window of a decoder's last row begins."""
    reader = tokenizer(tmp_path / "model", post="$A [SEP]", model_max_length=128)
    options = WINDOWS["Mistral"] | ENDS
    plain = network(tmp_path / "model", "Mistral", vocab_size=len(reader), **options)
    rows = [(text, "it was very dull and long", label) for text, label in FEW]
    settings = ("data.text=a", "data.text2=b")
    header = ("a", "b", "label")
    result = opened(tmp_path / "model", rows, tmp_path, *settings, header=header)
    assert_agrees(result, plain, reader, [row[:2] for row in rows])
    batch = result.data.splits["test"][[0, 1]]
    outputs = result.model(batch)
    assert not outputs.content[batch.segment == 0].any()
    assert outputs.content.sum(-1).tolist() == [5, 5]  # of 6 places, one is [SEP]
    (tmp_path / "first").mkdir()
    with pytest.raises(UserError, match=r"sees no word of text \d+"):
        opened(
            tmp_path / "model",
            rows,
            tmp_path / "first",
            *settings,
            "data.attend_to=first",
            header=header,
        )
