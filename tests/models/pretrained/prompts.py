"""Tiny causal language models, built from a configuration, with tokenizers of their families' kinds."""

from functools import cache

import pytest

from tests.models.pretrained.families import WORDS, drawn, stored

PROMPT = "Review: {text}\nSentiment:"
LABELS = {"negative": " bad", "positive": " good"}
SIZE = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
        "intermediate_size": 32, "max_position_embeddings": 96}  # fmt: skip
LANGUAGE_MODELS = {
    "gpt2": {"n_embd": 24, "n_layer": 3, "n_head": 4, "n_positions": 96},
    "qwen2": SIZE,
    "llama": SIZE,
    "gemma2": SIZE | {"final_logit_softcapping": 2.0, "query_pre_attn_scalar": 6},
}


@cache
def tokenizer(family="gpt2"):
    """Bytes, a space belonging to the word after it, and no start token; or as Llama's: ▁ for a space, and <s> before all."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["<unk>", "<s>", "</s>"]
    corpus = [PROMPT.format(text=" ".join(WORDS)) + label for label in LABELS.values()] * 20
    spaced = family in ("llama", "gemma2")
    if spaced:
        inner = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=False))
        inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        inner.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
        shown = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(content=" ", left=1)]
        inner.decoder = decoders.Sequence(shown)
        inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    else:
        inner = Tokenizer(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
    alphabet = [] if spaced else pre_tokenizers.ByteLevel.alphabet()
    size = 200 if spaced else 400
    inner.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    ))  # fmt: skip
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


@cache
def language_model(family):
    """A folder with an untrained causal language model of this family, as `save_pretrained` writes it."""
    transformers = pytest.importorskip("transformers")
    read = tokenizer(family)
    config = transformers.AutoConfig.for_model(
        family, **LANGUAGE_MODELS[family], vocab_size=len(read), bos_token_id=1, eos_token_id=2
    )
    return stored(drawn(lambda: transformers.AutoModelForCausalLM.from_config(config)), read)


def prompted(family, **settings):
    """The same as a classifier of ours, in eval mode."""
    from attnprobe.models.pretrained.model import PretrainedClassifier

    asked = {"path": str(language_model(family)), "prompt": PROMPT, "labels": LABELS, "class_names": list(LABELS)}
    return PretrainedClassifier(name=family, **asked | settings).eval()
