"""Tiny classifiers of many families of `transformers`, built from a configuration: nothing is
downloaded."""

import atexit
import csv
import shutil
import string
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import pytest
import torch

WORDS = "a the film was fine dull long story of people and music un able to see ing".split()  # noqa: SIM905
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZE = {
    "vocab_size": 96,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 48,
}
DECODER = SIZE | {"num_key_value_heads": 2, "head_dim": 6, "eos_token_id": 3, "bos_token_id": 2}
SEQUENCE = {
    "vocab_size": 96,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 48,
    "eos_token_id": 3,
    "bos_token_id": 2,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": 3,
}
T5 = {
    "vocab_size": 96,
    "d_model": 24,
    "d_kv": 6,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 4,
    "eos_token_id": 3,
    "decoder_start_token_id": 0,
}
LONGER = SIZE | {"max_position_embeddings": 50}
NARROW = SIZE | {"embedding_size": 12}
RELATIVE = SIZE | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
FAMILIES = {
    "bert": SIZE,
    "roberta": LONGER,
    "distilbert": {
        "vocab_size": 96,
        "dim": 24,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 32,
        "max_position_embeddings": 48,
    },
    "albert": NARROW,
    "electra": NARROW,
    "xlm-roberta": LONGER,
    "mpnet": LONGER,
    "deberta": RELATIVE,
    "deberta-v2": RELATIVE,
    "modernbert-cls": SIZE | {"classifier_pooling": "cls", "local_attention": 8},
    "modernbert-mean": SIZE | {"classifier_pooling": "mean", "local_attention": 8},
    "gpt2": {
        "vocab_size": 96,
        "n_embd": 24,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 48,
        "eos_token_id": 3,
        "bos_token_id": 2,
    },
    "llama": DECODER,
    "qwen2": DECODER,
    "qwen3": DECODER,
    "gemma": DECODER,
    "t5": T5,
    "bart": SEQUENCE,
}
"""Name → settings of a tiny one."""


def tokenizer():
    """Word pieces of a small vocabulary, letters included, [CLS] … [SEP] and pairs."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    letters = [
        *string.ascii_lowercase,
        *(f"##{letter}" for letter in string.ascii_lowercase),
        "##able",
        "##ing",
        ".",
    ]
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS, *letters])}
    inner = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        eos_token="[SEP]",
        model_max_length=48,
    )


def stored(network, tokenizer):
    """A folder with this network and its tokenizer, as `save_pretrained` writes them."""
    path = Path(mkdtemp(prefix="attnprobe-network-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    network.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def fit(network, losses, rate):
    """Take a step of AdamW for each of these losses, which are computed one after the other."""
    free = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(free, lr=rate)
    for loss in losses:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


TAUGHT = SIZE | {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
"""Settings of a BERT that learns something in a few seconds."""


def taught(
    head,
    rows,
    loss,
    *,
    size,
    rate,
    passes=20,
    seed=0,
    before=lambda network: None,
    **settings,
):
    """The folder of a small BERT that has learnt these rows by a plain loop.

    Args:
        head: its kind of head.
        rows: what it learns, in this order.
        loss: is given the network, its tokenizer and the columns of `size` rows.
        size: rows of a batch.
        rate: the learning rate.
        passes: passes over all rows.
        seed: of its first weights.
        before: is given the network before the first step.
        settings: of its configuration.
    """
    transformers = pytest.importorskip("transformers")
    reader = transformers.AutoTokenizer.from_pretrained(checkpoint("bert"))

    def losses():
        for _ in range(passes):
            for start in range(0, len(rows), size):
                columns = zip(*rows[start : start + size], strict=True)
                yield loss(network, reader, *columns)

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.BertConfig(**TAUGHT | settings)
        network = getattr(transformers, f"BertFor{head}")(config)
        before(network)
        fit(network, losses(), rate)
    return stored(network, reader)


def run_settings(folder, rows, output, *more, header=("text", "label"), training="none"):
    """Overrides of a run on these rows, normally with the checkpoint as it is."""
    path = output / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return [
        "model=pretrained",
        f"model.path={folder}",
        f"training={training}",
        "data=files",
        f"data.path={path}",
        f"output={output}",
        "trainer.accelerator=cpu",
        "figures=false",
        *more,
    ]


def drawn(build):
    """The network that `build` gives, with larger weights: the initial ones are too small for
    attention to matter."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build()
        for parameter in network.parameters():
            if parameter.ndim > 1:
                torch.nn.init.normal_(parameter, std=0.25)
    return network


@cache
def checkpoint(family: str, labels: tuple[str, ...] = ("negative", "positive")) -> Path:
    """A folder with an untrained classifier of this family, as `save_pretrained` writes it."""
    transformers = pytest.importorskip("transformers")
    name = family.removesuffix("-cls").removesuffix("-mean")
    settings = dict(FAMILIES[family])
    if name not in ("roberta", "xlm-roberta", "mpnet"):
        settings["pad_token_id"] = 0
    config = transformers.AutoConfig.for_model(
        name,
        **settings,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    reader = tokenizer()
    reader.model_input_names = ["input_ids", "attention_mask"]
    if name in ("bert", "albert", "electra", "deberta", "deberta-v2"):
        reader.model_input_names.append("token_type_ids")
    network = drawn(lambda: transformers.AutoModelForSequenceClassification.from_config(config))
    return stored(network, reader)


@cache
def library(kind: str, folder: Path):
    """A network of `transformers` alone that shows its attention, and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    read = getattr(transformers, f"AutoModelFor{kind}").from_pretrained
    network = read(folder, attn_implementation="eager")
    return network.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def library_says(kind: str, folder: Path, *texts: str):
    """What the library reads of a text or a pair, and what its network says of that."""
    network, reader = library(kind, folder)
    encoding = reader(*texts, return_tensors="pt")
    with torch.no_grad():
        return encoding, network(**encoding, output_attentions=True)


TEXTS = ["the film was fine", "a long and dull story of people unable to see the music", "fine"]


def classifier(
    family: str = "bert",
    labels: tuple[str, ...] = ("negative", "positive"),
    **settings: object,
):
    """A checkpoint as a model of ours, in eval mode."""
    from attnprobe.models.pretrained.model import PretrainedClassifier

    return PretrainedClassifier(
        name=family,
        path=str(checkpoint(family, labels)),
        class_names=settings.pop("class_names", labels),
        **settings,
    ).eval()


def batch_of(model, texts=TEXTS, questions=None, attend_to="both"):
    """Texts as this model reads them."""
    from attnprobe.data.pipeline import TextPipeline
    from attnprobe.data.text import TextRules
    from attnprobe.data.vocabulary import Vocabulary

    pipeline = TextPipeline(
        TextRules(tokenizer="whitespace", token_rules=()),
        Vocabulary(WORDS),
        [str(number) for number in range(model.classes)],
        attend_to=None if questions is None else attend_to,
        pieces=model.reader,
    )
    return pipeline.batch_of(texts, questions)


def prepared(family: str = "bert", texts=TEXTS, **settings: object):
    """A model whose attention has been examined, in its precision, and texts as it reads them."""
    model = classifier(family, **settings)
    batch = batch_of(model, texts)
    model.prepare(batch)
    return model.to(model.precision), batch


PROMPT = "Review: {text}\nSentiment:"
LABELS = {"negative": " bad", "positive": " good"}
WIDER = DECODER | {"max_position_embeddings": 96}
LANGUAGE_MODELS = {
    "gpt2": FAMILIES["gpt2"] | {"n_positions": 96},
    "qwen2": WIDER,
    "llama": WIDER,
    "gemma2": WIDER | {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 6},
}


SPECIAL_OF_LANGUAGE = ["<unk>", "<s>", "</s>"]


@cache
def language_tokenizer(family="gpt2"):
    """A tokenizer as that of GPT-2 or of Llama, which knows the prompt and a few words."""
    from transformers import PreTrainedTokenizerFast

    inner = spaced_pieces() if family in ("llama", "gemma2") else byte_pieces()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )


def language_corpus():
    """What the tokenizers of language models are trained on."""
    prompt = PROMPT.format(text=" ".join(WORDS))
    return [prompt + label for label in LABELS.values()] * 20


def byte_pieces():
    """As GPT-2's: bytes, a space belonging to the word after it, and no start token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL_OF_LANGUAGE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(language_corpus(), trainer)
    return inner


def spaced_pieces():
    """As Llama's: ▁ for a space, and <s> before all."""
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
        trainers,
    )

    inner = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=False))
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    inner.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
    )
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=200,
        special_tokens=SPECIAL_OF_LANGUAGE,
        show_progress=False,
    )
    inner.train_from_iterator(language_corpus(), trainer)
    return inner


@cache
def language_model(family):
    """A folder with an untrained causal language model of this family, as `save_pretrained` writes
    it."""
    transformers = pytest.importorskip("transformers")
    reader = language_tokenizer(family)
    settings = LANGUAGE_MODELS[family] | {
        "vocab_size": len(reader),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    config = transformers.AutoConfig.for_model(family, **settings)
    network = drawn(lambda: transformers.AutoModelForCausalLM.from_config(config))
    return stored(network, reader)


def prompted(family, **settings):
    """A language model as a classifier of ours, in eval mode."""
    from attnprobe.models.pretrained.model import PretrainedClassifier

    defaults = {
        "path": str(language_model(family)),
        "prompt": PROMPT,
        "labels": LABELS,
        "class_names": list(LABELS),
    }
    return PretrainedClassifier(name=family, **defaults | settings).eval()
