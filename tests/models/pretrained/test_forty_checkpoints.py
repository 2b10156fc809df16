"""Every kind of checkpoint that is supported, on cells of every kind, beside the library.

Slow: `pytest -m slow -s tests/models/pretrained/test_forty_checkpoints.py` prints the table.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from attnprobe.core.errors import UserError
from tests.models.pretrained import families
from tests.models.pretrained.whole_words import LABELS, opened

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow
CLOSE = 1e-5
LONGEST = 128

CELLS = [
    "the film was fine",
    "the film was fine\nand the story\n\nwas dull",
    "the\tfilm\t\twas fine",
    "  the film was fine  ",
    "\nthe film",
    "the film\r\nwas fine\r\n",
    "the film  was   fine",
    "the\u00a0film was\u2003fine",
    "the film \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467 was fine",
    "\U0001f44d\U0001f3fd",
    "الفيلم كان جيدا",
    "הסרט the film היה",
    "电影很好看 the film",
    "映画は fine でした",
    "le film était très bien",
    "e\u0301te\u0301 cafe\u0301",
    "the film [SEP] was fine",
    "the <s>film</s> was <unk> fine",
    "[CLS] the film [MASK] fine [PAD]",
    "<|endoftext|> the film <pad>",
    "the film\u200b was\u00ad fine",
    "THE FILM WAS FINE!!!",
    "don't can't it's (fine)…",
    "1,234.5 + 6e7 = 100 %",
    "<br />the film<br /><b>fine</b>",
    "def f(x):\n    return x\n",
    '{"film": "fine", "a": [1, 2]}',
    "x" * 300,
    "fine",
    " ".join(["the", "film", "was", "fine", "and"] * 1000),
]
"""30 cells; the last one has 5,000 words."""

TINY = families.SIZE | {"max_position_embeddings": LONGEST, "vocab_size": 400}
LONGER = TINY | {"max_position_embeddings": LONGEST + 2}
DECODER = TINY | {"num_key_value_heads": 2, "head_dim": 6}
WINDOW = DECODER | {"sliding_window": 8}
GPT2 = families.FAMILIES["gpt2"] | {"n_positions": LONGEST, "vocab_size": 400}
SEQUENCE = families.SEQUENCE | {"max_position_embeddings": LONGEST, "vocab_size": 400}


@dataclass
class Case:
    """A checkpoint.

    Attributes:
        family: as `transformers` calls it.
        reader: whose tokenizer it has: `words` (BERT's), `bytes` (GPT-2's) or `spaces` (Llama's).
        settings: of its configuration.
        head: its kind of head.
        tokens: settings of its tokenizer.
        dtype: in which its weights are stored.
        overrides: of the run.
        column: what a row has besides its text.
        refused: what is said where it is not supported.
    """

    family: str
    reader: str
    settings: dict[str, Any] = field(default_factory=dict)
    head: str = "SequenceClassification"
    tokens: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    overrides: tuple[str, ...] = ()
    column: str = ""
    refused: str = ""


NAMES = families.FAMILIES | {
    "t5": families.T5 | {"vocab_size": 400},
    "distilbert": families.FAMILIES["distilbert"]
    | {"vocab_size": 400, "max_position_embeddings": LONGEST},
}
AS_CHARACTERS = ("model.special_tokens=characters",)
PROMPT = "Review: {text}\nSentiment:"
ASKED = (
    'model.prompt="Review: {text}\\nSentiment:"',
    'model.labels={no: " bad", yes: " good"}',
)
SCORED = ("model.threshold=0.0", "data.labels=[no, yes]")
TAGGED = ("data.token=other", "model.removal=mask")
PAIRED = ("data.text2=other",)
CASES = {
    "bert": Case("bert", "words", TINY),
    "distilbert": Case("distilbert", "words", NAMES["distilbert"]),
    "albert": Case("albert", "spaces", TINY | {"embedding_size": 12}),
    "electra": Case("electra", "words", TINY | {"embedding_size": 12}),
    "mpnet": Case("mpnet", "words", LONGER),
    "roberta": Case("roberta", "bytes", LONGER),
    "xlm-roberta": Case("xlm-roberta", "spaces", LONGER),
    "big_bird": Case("big_bird", "spaces", TINY | {"attention_type": "original_full"}),
    "deberta": Case("deberta", "bytes", TINY | families.RELATIVE | TINY),
    "deberta-v2": Case("deberta-v2", "spaces", families.RELATIVE | TINY),
    "modernbert, first row": Case(
        "modernbert", "bytes", TINY | {"classifier_pooling": "cls", "local_attention": 8}
    ),
    "modernbert, mean": Case(
        "modernbert", "bytes", TINY | {"classifier_pooling": "mean", "local_attention": 8}
    ),
    "t5": Case("t5", "spaces", NAMES["t5"], overrides=AS_CHARACTERS, tokens={"end": True}),
    "bart": Case("bart", "bytes", SEQUENCE, overrides=AS_CHARACTERS, tokens={"end": True}),
    "gpt2": Case("gpt2", "bytes", GPT2),
    "llama": Case("llama", "spaces", DECODER),
    "qwen2": Case("qwen2", "bytes", DECODER),
    "qwen3": Case("qwen3", "bytes", DECODER),
    "gemma": Case("gemma", "spaces", DECODER),
    "gemma2, window": Case("gemma2", "spaces", WINDOW | {"query_pre_attn_scalar": 6}),
    "mistral, window": Case("mistral", "spaces", WINDOW),
    "phi3": Case("phi3", "spaces", TINY | {"num_key_value_heads": 2, "rope_scaling": None}),
    "opt": Case("opt", "bytes", TINY | {"ffn_dim": 32, "word_embed_proj_dim": 24}),
    "gpt_neox": Case("gpt_neox", "bytes", TINY),
    "bloom": Case(
        "bloom", "bytes", {"vocab_size": 400, "hidden_size": 24, "n_layer": 2, "n_head": 4}
    ),
    "bert in float16": Case("bert", "words", TINY, dtype=torch.float16),
    "bert in bfloat16": Case("bert", "words", TINY, dtype=torch.bfloat16),
    "bert in float64": Case("bert", "words", TINY, dtype=torch.float64),
    "llama in bfloat16": Case("llama", "spaces", DECODER, dtype=torch.bfloat16),
    "llama, padding left": Case("llama", "spaces", DECODER, tokens={"padding_side": "left"}),
    "qwen2, cut on the left": Case("qwen2", "bytes", DECODER, tokens={"truncation_side": "left"}),
    "gpt2, no padding": Case("gpt2", "bytes", GPT2 | {"pad_token_id": None}),
    "llama, padding is the end": Case(
        "llama", "spaces", DECODER | {"pad_token_id": 2}, tokens={"end": True}
    ),
    "gpt2, asked": Case("gpt2", "bytes", GPT2, "CausalLM", overrides=ASKED),
    "llama, asked": Case("llama", "spaces", DECODER, "CausalLM", overrides=ASKED),
    "qwen2, asked": Case("qwen2", "bytes", DECODER, "CausalLM", overrides=ASKED),
    "bert, pairs": Case("bert", "words", TINY, overrides=PAIRED, column="pair"),
    "roberta, pairs": Case("roberta", "bytes", LONGER, overrides=PAIRED, column="pair"),
    "bert, a score": Case("bert", "words", TINY | {"num_labels": 1}, overrides=SCORED),
    "llama, a score": Case("llama", "spaces", DECODER | {"num_labels": 1}, overrides=SCORED),
    "bert, words": Case(
        "bert", "words", TINY, "TokenClassification", overrides=TAGGED, column="word"
    ),
    "deberta-v2, words": Case(
        "deberta-v2",
        "spaces",
        families.RELATIVE | TINY,
        "TokenClassification",
        tokens={"mask_token": "<unk>"},
        overrides=TAGGED,
        column="word",
    ),
    "gpt_oss, sinks": Case(
        "gpt_oss",
        "bytes",
        WINDOW | {"num_local_experts": 2, "num_experts_per_tok": 1},
        refused="its rows sum to",
    ),
}


def reader_of(kind, *, end=False, **settings):
    """A tokenizer of this kind, with a token at the end where `end` is set."""
    from tokenizers import processors

    if kind == "words":
        reader = families.tokenizer()
        reader.model_max_length = LONGEST
        for name, value in settings.items():
            setattr(reader, name, value)
        return reader
    inner = families.byte_pieces() if kind == "bytes" else families.spaced_pieces()
    single = "<s> $A </s>" if end or kind == "bytes" else "<s> $A"
    inner.post_processor = processors.TemplateProcessing(
        single=single,
        pair=f"{single} $B </s>" if "</s>" in single else "<s> $A $B",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    )
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<unk>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=LONGEST,
        model_input_names=["input_ids", "attention_mask"],
        **special | settings,
    )


def stored(folder, case):
    """The checkpoint's folder."""
    tokens = dict(case.tokens)
    if case.head == "CausalLM" and case.reader == "bytes":
        reader = families.language_tokenizer("gpt2")
        reader.model_max_length = LONGEST
    else:
        reader = reader_of(case.reader, **tokens)
    settings = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | case.settings
    if case.family in ("roberta", "xlm-roberta", "mpnet"):
        settings["pad_token_id"] = 1
    settings["eos_token_id"] = 2
    if case.head != "CausalLM" and "num_labels" not in settings:
        settings |= {"id2label": LABELS, "label2id": {"no": 0, "yes": 1}}
    config = transformers.AutoConfig.for_model(case.family, **settings)
    build = getattr(transformers, f"AutoModelFor{case.head}").from_config
    families.drawn(lambda: build(config)).to(case.dtype).save_pretrained(folder)
    reader.save_pretrained(folder)
    return folder


def rows_of(case):
    """The cells with what else a row has."""
    other = {"pair": "people  able\nto see", "word": "0"}.get(case.column)
    rows = []
    for number, cell in enumerate(CELLS):
        label = ("no", "yes")[number % 2]
        rows.append((cell, label) if other is None else (cell, other, label))
    return rows


def first_pieces_of_labels(tokenizer, prompt, length):
    """The piece with which each label goes on after so many of the prompt; the vocabulary's first
    two where one has none."""
    first_pieces = []
    for label in (" bad", " good"):
        pieces = tokenizer(prompt + label).input_ids[length:]
        if not pieces:
            return [0, 1]
        first_pieces.append(pieces[0])
    return first_pieces


@torch.no_grad()
def library(folder, case):
    """Pieces and numbers of every cell, one at a time, as a user of the library gets them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    read = getattr(transformers, f"AutoModelFor{case.head}").from_pretrained
    network = read(folder, dtype=torch.float32).eval()
    options = {"split_special_tokens": True} if case.overrides == AS_CHARACTERS else {}
    for row in rows_of(case):
        strings = row[:1]
        if case.column == "pair":
            strings = row[:2]
        if case.overrides == ASKED:
            strings = [PROMPT.format(text=row[0])]
        encoding = tokenizer(
            *strings,
            return_tensors="pt",
            truncation=True,
            **options,
        )
        if case.family not in ("bert", "electra", "albert", "deberta", "deberta-v2", "big_bird"):
            encoding.pop("token_type_ids", None)
        logits = network(**encoding).logits[0]
        if case.overrides == ASKED:
            length = encoding.input_ids.shape[1]
            first_pieces = first_pieces_of_labels(tokenizer, strings[0], length)
            logits = logits[-1, first_pieces]
        elif case.column == "word":
            first_character = len(row[0]) - len(row[0].lstrip())
            logits = logits[encoding.char_to_token(0, first_character)]
        yield encoding.input_ids[0].tolist(), logits.double()


@pytest.mark.parametrize("name", CASES)
def test_pieces_and_predictions_of_every_cell_are_the_librarys(tmp_path, name):
    case = CASES[name]
    folder = stored(tmp_path / "model", case)
    path = tmp_path / "cells.jsonl"
    header = ["text", "label"] if case.column == "" else ["text", "other", "label"]
    with path.open("w", encoding="utf-8") as file:
        for row in rows_of(case):
            cells = dict(zip(header, row, strict=True))
            print(json.dumps(cells), file=file)
    overrides = (f"data.path={path}", *case.overrides)
    if case.refused:
        with pytest.raises(UserError, match=case.refused):
            opened(folder, [], tmp_path, *overrides)
        print(f"\n| {name} | refused: {case.refused} … | | |")
        return

    result = opened(folder, [], tmp_path, *overrides)
    pieces = [ids.tolist() for ids in result.data.splits["test"].columns["pieces"]]
    logits = result.logits()
    equal = 0
    largest = 0.0
    for row, (ids, expected) in enumerate(library(folder, case)):
        if pieces[row] != ids:
            assert case.overrides == ASKED
            assert len(CELLS[row]) >= 300  # what is too long is cut, and its prompt is not
            continue
        equal += 1
        difference = difference_of(result.model, logits[row], expected)
        largest = max(largest, difference.abs().max().item())
    cost = f"{result.model.comparison.seconds:.2f}"
    print(f"\n| {name} | {equal} of {len(CELLS)} | {largest:.0e} | {cost} |")
    assert largest < CLOSE


def difference_of(model, logits, expected):
    """By how much a prediction differs from the library's: in probability, or in a score."""
    if len(expected) > 1:
        return logits.softmax(-1) - expected.softmax(-1)
    no, yes = logits
    score = (yes - no) * unit_of(model.network)
    return score - expected


def unit_of(network):
    """The unit of a score."""
    from attnprobe.models.pretrained.heads import ScoreHead

    return next(float(part.unit) for part in network.modules() if isinstance(part, ScoreHead))
