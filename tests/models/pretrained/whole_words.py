"""Tiny checkpoints after public reports of bugs, most of whose tokenizers know whole words; and a
run of one up to its first probe."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from attnprobe.runs.build import untrained
from attnprobe.runs.settings import Settings
from tests.models.pretrained.families import run_settings
from tests.small_runs import composed

WORDS = "the a film plot was is of with music story people dull fine long bad good very and but it".split()  # noqa: SIM905, E501


def row_of(number):
    """A text that is bad or good, very or not, and its label."""
    first = WORDS[number % 11]
    very = "very " * (number % 3)
    end = f"{WORDS[number // 11]} {WORDS[number % 13]}"
    if number % 2:
        return f"{first} film was {very}good and {end}", "yes"
    return f"{first} film was {very}bad and {end}", "no"


ROWS = [row_of(number) for number in range(120)]
"""Texts of 7 to 9 words, so that batches hold padding; `bad` or `good` says the label."""
LABELS = {0: "no", 1: "yes"}
SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "id2label": LABELS,
    "label2id": {name: number for number, name in LABELS.items()},
}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "init_std": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": 3,
    "id2label": LABELS,
}


NAMED = {"id2label": LABELS, "label2id": SMALL["label2id"]}
OWN = {
    "Bart": BART,
    "XLNet": NAMED | {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, "pad_token_id": 0},
    "Funnel": NAMED | {"block_sizes": [1, 1], "d_model": 32, "n_head": 2, "d_head": 16},
    "Mamba": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "intermediate_size": 64},
}
"""Networks that have other names for their sizes than `SMALL`."""


def tokenizer(folder, *, post="[CLS] $A [SEP]", added=(), **options):
    """Whole words, BERT's special tokens, and a template after them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    ids = {word: number for number, word in enumerate(names)}
    inner = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single=post,
        pair=f"{post} {post.replace('$A', '$B:1')}",
        special_tokens=[(name, ids[name]) for name in post.split() if name in ids],
    )
    special = {
        f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")
    }
    settings = {"model_max_length": 48} | special | options
    result = PreTrainedTokenizerFast(tokenizer_object=inner, **settings)
    result.add_tokens(list(added))
    result.save_pretrained(folder)
    return result


def byte_tokenizer(folder, **options):
    """One piece per byte, the space and the line break among them, as RoBERTa begins."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    names = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> $B </s>",
        special_tokens=[("<s>", 1), ("</s>", 2)],
    )
    tokens = {f"{name}_token": f"<{name}>" for name in ("pad", "unk", "mask")}
    ends = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    settings = {"model_max_length": 300} | tokens | ends | options
    result = PreTrainedTokenizerFast(tokenizer_object=inner, **settings)
    result.save_pretrained(folder)
    return result


def network(folder, kind, head="SequenceClassification", **options):
    """A random network of this kind, stored in the folder."""
    transformers = pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        settings = OWN.get(kind, SMALL) | options
        config = getattr(transformers, f"{kind}Config")(**settings)
        result = getattr(transformers, f"{kind}For{head}")(config).eval()
    result.save_pretrained(folder)
    return result


@torch.no_grad()
def library_says(network, tokenizer, *texts):
    """The library's logits of one text or pair, in float64."""
    encoding = tokenizer(*texts, return_tensors="pt", return_token_type_ids=False, truncation=True)
    return network.double()(**encoding).logits[0]


def library_predictions(network, tokenizer, texts, second_texts=None):
    """The library's probabilities of each text, or of each pair, by itself."""
    columns = [texts] if second_texts is None else [texts, second_texts]
    logits = [library_says(network, tokenizer, *row) for row in zip(*columns, strict=True)]
    return torch.stack(logits).double().softmax(-1)


def texts_of(rows):
    """Their first column."""
    return [text for text, *_ in rows]


class Opened(NamedTuple):
    """A run up to its first probe: the model, in its precision, and its data."""

    model: object
    data: object

    @torch.no_grad()
    def logits(self):
        """Of all texts, in batches as the run's."""
        logits = torch.zeros(len(self.data.splits["test"]), self.model.classes).double()
        for batch in self.data.loader("test"):
            logits[batch.example_id] = self.model(batch).logits.double()
        return logits

    def predictions(self):
        """Probabilities of all texts."""
        return self.logits().softmax(-1)

    def check(self, name="library"):
        """The sentence of a check of the data, and whether it warns."""
        (check,) = (check for check in self.data.checks if check.name == name)
        return check.sentence, check.warns


def opened(folder: Path, rows, output: Path, *overrides, **settings) -> Opened:
    """Open a checkpoint on these rows, as a run does before its first probe."""
    config = composed(*run_settings(folder, rows, output, *overrides, **settings))
    parts = Settings.of(config).parts
    parts.data.setup()
    model = untrained(parts, parts.data).eval()
    return Opened(model.to(model.precision), parts.data)
