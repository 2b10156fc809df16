import itertools
import math
import os
import random
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.data.local_files import DATA_DIR
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import TextRules
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.models.attention import LabelAttention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import LabelDecoder
from attnprobe.models.encoders import LabelVector
from attnprobe.models.pretrained.encoder import PretrainedEncoder, windows_of_text
from attnprobe.models.recipe import Recipe
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.models.pretrained.families import WORDS, checkpoint
from tests.small_runs import composed

transformers = pytest.importorskip("transformers")
MINILM = Path(os.environ.get(DATA_DIR, "data")).parent / "models" / "minilm_l6"
FAMILIES = ["bert", "roberta", "deberta-v2", "modernbert-cls", "gpt2", "minilm"]


def folder_of(family):
    """A checkpoint: a tiny one, or MiniLM beside the folder of the data sets."""
    if family != "minilm":
        return checkpoint(family)
    if not MINILM.is_dir():
        pytest.skip(f"MiniLM is not at {MINILM}")
    return MINILM


def encoder_of(family="bert", **settings):
    """In eval mode and float64."""
    return PretrainedEncoder(1, str(folder_of(family)), **settings).eval().double()


def batch_of(encoder, texts, questions=None):
    """Texts as the encoder reads them."""
    pipeline = TextPipeline(
        TextRules(tokenizer="whitespace", token_rules=()),
        Vocabulary(WORDS),
        ["no", "yes"],
        question=questions is not None,
        question_kind="label",
        pieces=encoder.reader,
    )
    return pipeline.batch_of(texts, questions)


def states_of(encoder, batch):
    with torch.no_grad():
        states, content, _ = encoder.states(encoder.inputs(batch), batch)
    return states, content


def drawn_texts(*lengths):
    """Words some of which are of several pieces, `filming` of two."""
    draw = random.Random(0)
    vocabulary = [*WORDS, "filming", "unable", "musicable"]
    return [" ".join(draw.choices(vocabulary, k=length)) for length in lengths]


def library_of(folder):
    """The library alone: a network and its tokenizer."""
    network = transformers.AutoModel.from_pretrained(folder).eval().double()
    return network, transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_fits_into_a_window_is_read_as_the_library_reads_it(family):
    lengths = [3, 11, 1, 7]
    texts = drawn_texts(*lengths)
    encoder = encoder_of(family)
    states, content = states_of(encoder, batch_of(encoder, texts))
    assert content.sum(1).tolist() == lengths
    assert (states[~content] == 0).all()
    network, tokenizer = library_of(folder_of(family))
    for row, text in enumerate(texts):
        encoding = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
        offsets = encoding.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            (piece_states,) = network(**encoding).last_hidden_state
        for number, word in enumerate(re.finditer(r"\S+", text), 1):
            pieces = pieces_within(offsets, *word.span())
            expected = piece_states[pieces].mean(0)
            assert_close(states[row, number], expected, atol=1e-6, rtol=1e-6)


def pieces_within(offsets, start, end):
    """The pieces that share a character with a stretch of the text."""
    return [
        piece
        for piece, (first, stop) in enumerate(offsets)
        if first < end and stop > start and stop > first
    ]


def window_starts(count, room, overlap):
    """Where each window over so many pieces starts."""
    step = max(1, room - round(overlap * room))
    starts = [0]
    while starts[-1] + room < count:
        starts.append(min(starts[-1] + step, count - room))
    return starts


def window_with_most_context(first, end, starts, room):
    """The number of the window with most pieces on the side of a word that has fewer of them."""
    context = [min(first - start, start + room - end) for start in starts]
    return context.index(max(context))


def states_by_loop(folder, text, size, overlap):
    """The states of one text's words: every window by itself, and every word in its best one.

    Returns:
        The states, and how many windows there are.
    """
    network, tokenizer = library_of(folder)
    words = [tokenizer(word, add_special_tokens=False).input_ids for word in text.split()]
    pieces = list(itertools.chain(*words))
    room = size - 2
    starts = window_starts(len(pieces), room, overlap)
    windows = []
    for start in starts:
        inside = pieces[start : start + room]
        ids = torch.tensor([[tokenizer.cls_token_id, *inside, tokenizer.sep_token_id]])
        with torch.no_grad():
            windows.append(network(ids).last_hidden_state[0, 1:-1])

    states = []
    end = 0
    for word in words:
        first = end
        end = first + len(word)
        best = window_with_most_context(first, end, starts, room)
        start = max(0, first - starts[best])
        stop = end - starts[best]
        states.append(windows[best][start:stop].mean(0))
    return torch.stack(states), len(starts)


@pytest.mark.parametrize(
    ("family", "size", "overlap"),
    [
        ("bert", 12, 0.0),
        ("bert", 12, 0.5),
        ("bert", 17, 0.25),
        ("bert", 9, 0.85),
        ("minilm", 17, 0.25),
        pytest.param("minilm", 9, 0.85, marks=pytest.mark.slow),
    ],
)
def test_words_of_longer_texts_have_the_states_of_the_window_with_most_context(
    family, size, overlap
):
    encoder = encoder_of(family, window=size, overlap=overlap)
    texts = drawn_texts(6, 31, 55)
    batch = batch_of(encoder, texts)
    states, _ = states_of(encoder, batch)
    counts = []
    for row, text in enumerate(texts):
        expected, windows = states_by_loop(folder_of(family), text, size, overlap)
        assert_close(states[row, 1 : 1 + len(expected)], expected, atol=1e-6, rtol=1e-6)
        counts.append(windows)
    assert counts[0] == 1
    assert counts[2] > counts[1] > 2
    # a word of one window would have another state in another: the rule is not idle
    whole, _ = states_of(encoder_of(family), batch)
    assert (whole - states)[2].abs().max() > 1e-3


def test_neither_padding_nor_the_texts_beside_it_change_a_state():
    encoder = encoder_of(window=12)
    texts = drawn_texts(4, 40, 17)
    states, content = states_of(encoder, batch_of(encoder, texts))
    for row, text in enumerate(texts):
        single = batch_of(encoder, [text])
        [expected], [is_word] = states_of(encoder, single)
        assert_close(states[row, content[row]], expected[is_word])


def test_every_piece_of_a_word_is_read_once_but_a_word_longer_than_a_window_is_cut():
    words = torch.tensor([-1, 1, 2, 3, -1])
    pieces = torch.tensor([1, 3, 20, 2, 1])
    word_of_piece = words.repeat_interleave(pieces)
    places, words_read = windows_of_text(word_of_piece, 10, 0.25)
    # the second word has 20 pieces; beside the two special ones a window has room for 8
    pieces_read = words_read[words_read >= 0].bincount()
    assert pieces_read.tolist() == [0, 3, 8, 2]
    assert places.shape[1] == 10
    assert (places[:, 0] == 0).all()
    assert (places[:, -1] == 26).all()


def labelled(recipe=None, **settings):
    """An untrained model of labels over a tiny encoder, in float64."""
    torch.manual_seed(0)
    vectors = torch.randn(len(WORDS) + 4, 32)
    vectors[0] = 0
    return (
        AttentionClassifier(
            embeddings=vectors,
            encoder=partial(PretrainedEncoder, path=str(checkpoint("bert")), **settings),
            attention=partial(LabelAttention, inner_size=8),
            decoder=LabelDecoder,
            classes=2,
            question_encoder=LabelVector,
            recipe=recipe,
        )
        .eval()
        .double()
    )


def test_a_text_is_encoded_once_for_all_its_labels_and_not_taken_for_one_with_other_pieces():
    """No word is of the vocabulary, so that both texts have the same ids."""
    classifier = labelled(window=12)
    texts = ["xa xb xc", "xa xb xc", "ya yb yc", "ya yb yc"]
    labels = ["the", "film", "the", "film"]
    batch = batch_of(classifier, texts, labels)
    assert batch.ids[0].equal(batch.ids[2])
    counts = []

    def count_texts(module, arguments, keywords):
        counts.append(len(keywords["inputs_embeds"]))

    network = classifier.encoder.network
    network.register_forward_pre_hook(count_texts, with_kwargs=True)
    outputs = classifier(batch)

    assert counts == [2]
    for row in range(4):
        alone = classifier(batch_of(classifier, [texts[row]], [labels[row]]))
        assert_close(outputs.logits[row], alone.logits[0])
    assert (outputs.logits[0] - outputs.logits[2]).abs().max() > 1e-4


@pytest.mark.parametrize("place", [0, 7, 29])
def test_a_word_goes_with_its_pieces(place):
    classifier = labelled(window=12)
    (text,) = drawn_texts(30)
    words = text.split()
    shorter = " ".join(words[:place] + words[place + 1 :])
    batch = batch_of(classifier, [text], ["film"])
    position = torch.tensor([1 + place])
    without = classifier.without(batch, torch.tensor([0]), position)
    expected = classifier(batch_of(classifier, [shorter], ["film"]))
    assert_close(classifier(without).logits, expected.logits)


def test_a_masked_word_has_the_tokenizers_mask():
    classifier = labelled(window=12)
    batch = batch_of(classifier, drawn_texts(30), ["film"])
    is_last = torch.zeros_like(batch.content)
    is_last[0, 30] = True
    masked = classifier.masked(batch, is_last)
    is_masked = batch.piece_word == 30
    assert set(masked.pieces[is_masked].tolist()) == {classifier.mask}
    assert masked.pieces[~is_masked].equal(batch.pieces[~is_masked])


@pytest.mark.parametrize("piece", [1, 9, 21])
def test_derivatives_by_words_are_those_of_finite_differences(piece):
    classifier = labelled(window=12)
    batch = batch_of(classifier, drawn_texts(20), ["film"])
    scale, outputs = classifier.scaled(batch)
    (derivative,) = torch.autograd.grad(outputs.logits[:, 1].sum(), scale)

    @torch.no_grad()
    def logit_at(factor):
        inputs = classifier.inputs(batch).clone()
        inputs[0, piece] *= factor
        return classifier.outputs_from(batch, inputs).logits[0, 1]

    expected = (logit_at(1 + 1e-5) - logit_at(1 - 1e-5)) / 2e-5
    assert_close(derivative[0, piece], expected, atol=1e-7, rtol=1e-5)


def test_the_derivative_by_a_word_is_the_sum_of_those_by_its_pieces():
    classifier = labelled(window=12)
    batch = batch_of(classifier, drawn_texts(20), ["film"])
    scale, outputs = classifier.scaled(batch)
    (derivative,) = torch.autograd.grad(outputs.logits[:, 1].sum(), scale)
    by_words = classifier.per_position(batch, derivative)
    for word in range(1, 21):
        pieces = derivative[batch.piece_word == word]
        assert_close(by_words[0, word], pieces.sum())


def test_what_states_do_not_depend_on_is_not_trained_and_biases_have_no_weight_decay():
    optimizer = partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.1)
    recipe = Recipe(optimizer, attention_weight_decay=None, selection_metric="loss")
    classifier = labelled(recipe)
    names = [name for name, weights in classifier.named_parameters() if not weights.requires_grad]
    pooler = "encoder.network.pooler.dense"
    assert names == [f"{pooler}.weight", f"{pooler}.bias"]
    groups = classifier.configure_optimizers().param_groups
    trained = [weights for group in groups for weights in group["params"]]
    expected = [weights for weights in classifier.parameters() if weights.requires_grad]
    assert {id(weights) for weights in trained} == {id(weights) for weights in expected}
    assert len(trained) == len(expected)
    for group in groups:
        for weights in group["params"]:
            assert (group["weight_decay"] == 0) == (weights.ndim == 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 64}, r"model.encoder.window=64: this model takes at most 48 pieces"),
        ({"path": "/nowhere/at/all"}, r"model.path=/nowhere/at/all: there is no such folder"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_line(settings, message):
    with pytest.raises(UserError, match=message):
        PretrainedEncoder(1, **{"path": str(checkpoint("bert"))} | settings)


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_an_encoder_with_a_decoder_is_refused(family):
    with pytest.raises(UserError, match=f"{family} is an encoder with a decoder: expected an enc"):
        PretrainedEncoder(1, str(checkpoint(family)))


def test_a_window_that_special_tokens_fill_is_refused():
    words = torch.tensor([-1] * 8 + [1, 2])
    with pytest.raises(UserError, match="window=8: 8 special tokens around a text leave no room"):
        windows_of_text(words, 8, 0.0)


def settings_of_run(output, *overrides):
    """A run of planted codes on a tiny encoder, whose texts are of several windows."""
    return composed(
        "task=labels",
        "model=plm_icd",
        f"model.path={checkpoint('bert')}",
        "training=finetune",
        "model.encoder.window=12",
        "model.attention.inner_size=8",
        "data.source.train_size=12",
        "data.source.validation_size=6",
        "data.source.test_size=2",
        "data.source.codes=3",
        "data.source.length=18",
        "data.embedding_size=16",
        "training.epochs=1",
        "trainer.accelerator=cpu",
        "figures=false",
        f"output={output}",
        *overrides,
    )


FEW_PROBES = "labels,erasure,permutation,gradient,leave_one_out,swaps,plausibility,skill"
PROBES = (
    "labels,erasure,permutation,adversarial,gradient,leave_one_out,correlation,single_weight,swaps,"
    "subsets,faithfulness,plausibility,known_answer,skill,signs,soft_erasure,words,conicity,"
    "readouts,agreement,sanity,near_ties,order_limits"
)
FEW = (
    "probe.swaps.texts=20",
    "probe.swaps.passes=100",
    "probe.swaps.most_passes=100",
    "probe.adversarial.steps=20",
    "probe.adversarial.restarts=2",
    "probe.subsets.most_words=6",
    "probe.skill.samples=5",
    "probe.sanity.samples=1",
    "probe.agreement.samples=3",
)


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    """A fine-tuned run and some probes of a model of labels."""
    output = tmp_path_factory.mktemp("plm_icd")
    return run(settings_of_run(output, f"probe=[{FEW_PROBES}]", *few_of(FEW_PROBES)))


def few_of(probes):
    """Settings of these probes by which they take little time."""
    return [setting for setting in FEW if setting.split(".")[1] in probes.split(",")]


@pytest.mark.slow
def test_every_probe_runs_on_a_fine_tuned_model_of_labels(tmp_path):
    results = read_results(run(settings_of_run(tmp_path, f"probe=[{PROBES}]", *FEW)))
    assert set(results["probe"]) >= set(PROBES.split(","))


def test_probes_run_on_a_fine_tuned_model_of_labels(examined):
    results = read_results(examined)
    assert set(results["probe"]) >= set(FEW_PROBES.split(","))
    assert set(results["model"]) == {"plm_icd"}
    values = results[results["metric"] == "other_label_tvd"]["value"]
    assert values.between(0, 1).all()
    words = read_examples(examined)["tokens"].map(len)
    assert words.min() > 10  # more than one window


def test_a_run_that_is_loaded_says_what_it_said(examined):
    loaded = load_run(examined)
    rows = read_examples(examined)[:4]
    questions = loaded.config["data"]["question"]
    assert questions == "asked_label"
    codes = [f"code{row % 3}" for row in range(4)]
    texts = [" ".join(tokens) for tokens in rows["tokens"]]
    explanation = loaded.explain(texts, codes, importance=["leave_one_out"])
    for tokens, expected_tokens in zip(explanation["tokens"], rows["tokens"], strict=True):
        assert list(tokens) == list(expected_tokens)
    attention = np.array(explanation["attention"][1])
    assert math.isclose(attention.sum(), 1, rel_tol=1e-6)
    code = rows["example_id"].to_numpy() % 3
    has_same_code = code == np.arange(4) % 3
    assert has_same_code.any()
    for row in np.flatnonzero(has_same_code):
        expected = rows["attention"].iloc[row]
        assert np.allclose(explanation["attention"][row], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training=qa"], r"model=plm_icd has an encoder that is trained already.*training=fine"),
        (["training.epochs=0"], r"training.epochs=0: expected a whole number of at least 1"),
        (["data.verbatim=false"], r"data.verbatim=false: this model reads texts as they stand"),
        (["model.encoder.overlap=1"], r"model.encoder.overlap=1: expected a number.*below 1"),
    ],
)
def test_a_run_that_cannot_be_is_refused_before_it_begins(overrides, message, tmp_path):
    with pytest.raises(UserError, match=message):
        run(settings_of_run(tmp_path, *overrides))
