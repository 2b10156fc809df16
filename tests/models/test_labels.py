"""A label is a question: CAML and LAAT, one label at a time."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.exact import attention_shapley, shapley_values, smallest_flipping_set
from attnprobe.findings.groups import read_run
from attnprobe.findings.sheet import remarks_on
from attnprobe.importance.base import Subject
from attnprobe.importance.leave_one_out.removal import LeaveOneOut
from attnprobe.models.attention import LabelAttention
from attnprobe.models.decoders import LabelDecoder
from attnprobe.models.encoders import LabelVector
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from tests.small_runs import composed
from tests.toys import assert_same_alone, rows_of, toy_batch, toy_classifier, toy_readout

LABELS = 5
LENGTHS = [6, 3, 1, 5]
CAML = LabelAttention
LAAT = partial(LabelAttention, inner_size=7)


def labelled(attention, *, padding=0, seed=0, encoder="lstm"):
    """A classifier, and every text of a batch asked for every label."""
    classifier = toy_classifier(
        encoder,
        attention,
        decoder=LabelDecoder,
        question=True,
        question_encoder=LabelVector,
        spread=3,
        seed=seed,
    )
    texts = toy_batch(LENGTHS, padding=padding)
    batch = texts.rows(torch.arange(len(LENGTHS)).repeat_interleave(LABELS))
    names = 4 + torch.arange(LABELS).repeat(len(LENGTHS))
    start, end = torch.full_like(names, 2), torch.full_like(names, 3)
    batch.question = torch.stack([start, names, end], 1)
    batch.question_mask = torch.ones_like(batch.question, dtype=torch.bool)
    return classifier, texts, batch


class PlainLabelAttention(torch.nn.Module):
    """As CAML and LAAT are published: all labels of a text at once, from their matrices."""

    def __init__(self, classifier):
        super().__init__()
        vectors = classifier.question_embedding.weight[4 : 4 + LABELS]
        self.queries = vectors @ classifier.attention.label.weight.T
        self.weights = vectors @ classifier.decoder.weight.weight.T
        bias = classifier.decoder.bias
        self.biases = vectors @ bias.weight[0] + bias.bias
        self.states = classifier.attention.states

    def forward(self, hidden):
        """Attention `[labels, words]` and one logit per label, for one text's states."""
        features = hidden if self.states is None else torch.tanh(self.states(hidden))
        attention = torch.softmax(self.queries @ features.T, -1)
        return attention, ((attention @ hidden) * self.weights).sum(-1) + self.biases


@pytest.mark.parametrize("attention", [CAML, LAAT])
def test_one_label_at_a_time_is_the_published_model(attention):
    classifier, texts, batch = labelled(attention)
    outputs = classifier(batch)
    plain = PlainLabelAttention(classifier)
    for number, length in enumerate(LENGTHS):
        words = slice(1, length + 1)
        hidden = outputs.hidden[number * LABELS, words]
        weights, logits = plain(hidden)
        rows = slice(number * LABELS, (number + 1) * LABELS)
        assert_close(outputs.attention[rows, words], weights)
        assert_close(outputs.logits[rows], torch.stack([torch.zeros(LABELS), logits], -1))
    assert texts.ids.shape[0] * LABELS == len(batch)


@pytest.mark.parametrize("attention", [CAML, LAAT])
def test_neither_padding_nor_other_rows_change_a_label(attention):
    classifier, _, batch = labelled(attention, padding=3)
    assert_same_alone(classifier, rows_of(batch, [0, 3, 7, 12]))


def test_a_text_is_encoded_once_for_all_its_labels():
    classifier, texts, batch = labelled(CAML)
    encoded = []
    classifier.encoder.register_forward_pre_hook(
        lambda _, arguments: encoded.append(len(arguments[0]))
    )
    outputs = classifier(batch)
    assert encoded == [len(texts)]
    alone = [classifier(batch.rows(torch.tensor([row]))) for row in range(len(batch))]
    assert_close(outputs.logits, torch.cat([single.logits for single in alone]))
    assert_close(outputs.attention, torch.cat([single.attention for single in alone]))


def test_a_text_that_was_changed_for_one_label_is_not_taken_for_the_others():
    classifier, _, batch = labelled(CAML)
    batch = batch.rows(batch.content.sum(1) > 2)
    shortened = batch.without(torch.arange(len(batch)), 1 + torch.arange(len(batch)) % 2)
    outputs = classifier(shortened)
    for row in range(len(batch)):
        single = classifier(shortened.rows(torch.tensor([row])))
        assert_close(single.logits[0], outputs.logits[row])
    texts, text = shortened.distinct_texts()
    assert len(texts) == len(batch)
    assert_close(texts.ids[text], shortened.ids)


def test_gradients_of_a_text_are_those_of_all_its_labels_together():
    classifier, _, batch = labelled(LAAT)
    classifier(batch).logits[:, 1].sum().backward()
    together = {name: value.grad.clone() for name, value in classifier.named_parameters()}
    classifier.zero_grad()
    for row in range(len(batch)):
        classifier(batch.rows(torch.tensor([row]))).logits[:, 1].sum().backward()
    for name, value in classifier.named_parameters():
        assert_close(together[name], value.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("attention", [CAML, LAAT])
def test_every_label_is_exact_in_its_own_attention(attention):
    classifier, _, batch = labelled(attention)
    outputs, readout = toy_readout(classifier, batch)
    moved = torch.rand(3, *readout.attention.shape, dtype=torch.float64) * readout.content
    moved = moved / moved.sum(-1, keepdim=True)
    decoded = classifier.decoder.decode(outputs.hidden, moved, outputs.query)
    assert_close(readout.logits(moved), decoded)
    assert_close(readout.logits(readout.attention), outputs.logits)


def test_the_smallest_set_of_a_label_is_that_of_all_subsets_in_both_directions():
    directions = set()
    for seed in range(3):
        classifier, _, batch = labelled(CAML, seed=seed)
        _, readout = toy_readout(classifier, batch)
        smallest = smallest_flipping_set(
            readout.attention, readout.position_logits, readout.content
        )
        margin = readout.position_logits[..., 1] - readout.position_logits[..., 0]
        for row in range(len(batch)):
            words = readout.content[row].nonzero()[:, 0].tolist()
            says_yes = bool(readout.attention[row] @ margin[row] > 0)
            best = None
            for size in range(1, len(words)):
                for erased in itertools.combinations(words, size):
                    kept = [word for word in words if word not in erased]
                    score = readout.attention[row, kept] @ margin[row, kept]
                    if best is None and bool(score > 0) != says_yes:
                        best = size
            assert int(smallest.size[row]) == (best or -1), (seed, row)
            if best is not None:
                directions.add(says_yes)
    assert directions == {True, False}


def test_the_shapley_values_of_a_label_are_those_of_all_subsets():
    classifier, _, batch = labelled(LAAT)
    _, readout = toy_readout(classifier, batch)
    payoffs = readout.position_logits - readout.unattended[:, None]
    values = attention_shapley(readout.attention, payoffs, readout.content).values[..., 1]
    for row in range(len(batch)):
        content = readout.content[row]
        weights = readout.attention[row, content]
        logits = payoffs[row, content, 1]
        masks = torch.arange(2 ** len(weights))
        kept = (masks[:, None] >> torch.arange(len(weights)) & 1) * weights
        game = (kept @ logits) / kept.sum(-1)
        game[0] = 0
        assert_close(values[row, content], shapley_values(game[None])[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize("attention", [CAML, LAAT])
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_leave_one_out_of_a_label_is_the_model_without_the_word(attention, encoder):
    classifier, _, batch = labelled(attention, encoder=encoder)
    outputs, readout = toy_readout(classifier, batch)
    scores = LeaveOneOut(tolerance=0.0).scores(Subject(classifier, batch, outputs, readout))
    for row in range(0, len(batch), 3):
        words = batch.content[row].nonzero()[:, 0].tolist()
        if len(words) == 1:
            continue
        for word in words:
            text = batch.rows(torch.tensor([row])).without(torch.tensor([0]), torch.tensor([word]))
            with torch.no_grad():
                reduced = classifier(text).logits.softmax(-1)[0]
            distance = (reduced - outputs.logits[row].softmax(-1)).abs().sum() / 2
            assert_close(scores[row, word], distance)


def test_texts_without_a_label_to_ask_for_are_refused():
    with pytest.raises(UserError, match="no label is asked for: add task=labels"):
        LabelAttention(4)
    with pytest.raises(UserError, match="no or yes to one label: add task=labels"):
        LabelDecoder(4, 2)
    with pytest.raises(UserError, match="no or yes to one label"):
        LabelDecoder(4, 3, query_size=8)


WINDOW = 7


def run_over(unit, output):
    """A small run of planted codes, looked at over words or over windows of seven."""
    settings = composed(
        "task=labels",
        f"model.unit={unit}",
        f"data.sentences={WINDOW}",
        "data.source.train_size=20",
        "data.source.validation_size=6",
        "data.source.test_size=6",
        "data.source.codes=3",
        "data.source.length=30",
        "data.embedding_size=16",
        "training.epochs=2",
        "training.recipe.optimizer.lr=0.01",
        "probe=[labels,erasure,permutation,single_weight,adversarial,swaps]",
        "probe.swaps.texts=20",
        "probe.swaps.passes=100",
        "probe.swaps.most_passes=100",
        "probe.adversarial.steps=10",
        "probe.adversarial.restarts=1",
        "trainer.accelerator=cpu",
        "figures=false",
        f"output={output}",
    )
    return run(settings)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same training over words and over windows, whose float32 sums are in another order."""
    output = tmp_path_factory.mktemp("units")
    return {unit: run_over(unit, output) for unit in ("word", "sentence")}


def examples_of(directory):
    return read_examples(directory).sort_values("example_id")


def test_over_windows_a_run_predicts_what_it_predicts_over_words_and_adds_up_their_weights(runs):
    assert runs["word"] != runs["sentence"]
    rows = zip(
        examples_of(runs["word"]).to_dict("records"),
        examples_of(runs["sentence"]).to_dict("records"),
        strict=True,
    )
    for text, windows in rows:
        assert np.allclose(text["probability"], windows["probability"], atol=1e-4)
        starts = range(0, len(text["tokens"]), WINDOW)
        expected = [" ".join(text["tokens"][start : start + WINDOW]) for start in starts]
        assert list(windows["tokens"]) == expected
        for place, start in enumerate(starts):
            weights = text["attention"][start : start + WINDOW]
            assert windows["attention"][place] == pytest.approx(weights.sum(), rel=1e-4)
            inner = np.array(windows["word_attention"][place]) * windows["attention"][place]
            assert np.allclose(inner, weights, atol=1e-4)


def test_over_windows_every_number_of_a_position_is_one_of_a_window(runs):
    results = read_results(runs["sentence"])
    assert set(results["probe"]) >= {"labels", "erasure", "permutation", "single_weight", "swaps"}
    lengths = examples_of(runs["sentence"]).set_index("example_id")["tokens"].map(len)
    for metric in ("word_share", "label_value"):
        counts = results[results["metric"] == metric].groupby("example_id").size()
        assert len(counts) == len(lengths)  # 6 texts with 3 codes each
        assert counts.tolist() == lengths[counts.index].tolist()
    sizes = results[results["metric"] == "yes_to_no"]["value"].dropna()
    assert len(sizes)
    assert (sizes <= lengths.max()).all()
    assert "holds for sentences" in remarks_on(read_run(runs["sentence"]))
    assert "holds for sentences" not in remarks_on(read_run(runs["word"]))


def test_a_run_over_windows_explains_new_texts_over_windows(runs):
    text = examples_of(runs["word"]).iloc[0]
    loaded = load_run(runs["sentence"])
    explanation = loaded.explain([" ".join(text["tokens"])], [text["question"][0]])
    expected = examples_of(runs["sentence"])["attention"].iloc[0]
    assert np.allclose(explanation["attention"][0], expected, atol=1e-5)
