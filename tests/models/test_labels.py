"""A label is a question: CAML and LAAT, one label at a time."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.exact import attention_shapley, smallest_flipping_set
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
from tests.shapley import shapley_of_means
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
    count = len(LENGTHS)
    text_of_row = torch.arange(count).repeat_interleave(LABELS)
    batch = texts.rows(text_of_row)
    start = torch.full((LABELS,), 2)
    label = 4 + torch.arange(LABELS)
    end = torch.full((LABELS,), 3)
    questions = torch.stack([start, label, end], -1)
    batch.question = questions.repeat(count, 1)
    batch.question_mask = torch.ones_like(batch.question, dtype=torch.bool)
    return classifier, texts, batch


class PlainLabelAttention(torch.nn.Module):
    """As CAML and LAAT are published: all labels of a text at once, from their matrices."""

    def __init__(self, classifier):
        super().__init__()
        attention = classifier.attention
        decoder = classifier.decoder
        vectors = classifier.question_embedding.weight[4 : 4 + LABELS]
        self.queries = vectors @ attention.label.weight.T
        self.weights = vectors @ decoder.weight.weight.T
        self.biases = vectors @ decoder.bias.weight[0] + decoder.bias.bias
        self.states = attention.states

    def forward(self, hidden):
        """Attention `[labels, words]` and one logit per label, for one text's states."""
        features = hidden
        if self.states is not None:  # LAAT
            features = torch.tanh(self.states(hidden))
        scores = self.queries @ features.T
        attention = scores.softmax(-1)
        attended = attention @ hidden
        logits = (attended * self.weights).sum(-1) + self.biases
        return attention, logits


@pytest.mark.parametrize("attention", [CAML, LAAT])
@pytest.mark.parametrize("number", range(len(LENGTHS)))
def test_one_label_at_a_time_is_the_published_model(attention, number):
    classifier, _, batch = labelled(attention)
    outputs = classifier(batch)
    words = slice(1, LENGTHS[number] + 1)
    first_row = number * LABELS
    rows = slice(first_row, first_row + LABELS)
    hidden = outputs.hidden[first_row, words]

    weights, logits = PlainLabelAttention(classifier)(hidden)

    assert_close(outputs.attention[rows, words], weights)
    assert_close(outputs.logits[rows, 1], logits)
    assert (outputs.logits[rows, 0] == 0).all()


@pytest.mark.parametrize("attention", [CAML, LAAT])
def test_neither_padding_nor_other_rows_change_a_label(attention):
    classifier, _, batch = labelled(attention, padding=3)
    assert_same_alone(classifier, rows_of(batch, [0, 3, 7, 12]))


def each_alone(classifier, batch):
    """Outputs of each row in a batch of its own."""
    for row in range(len(batch)):
        single = batch.rows(torch.tensor([row]))
        yield classifier(single)


def texts_read(classifier):
    """A list to which the number of texts is added whenever some are encoded."""
    counts = []

    def count(encoder, arguments):
        counts.append(len(arguments[0]))

    classifier.encoder.register_forward_pre_hook(count)
    return counts


def test_a_text_is_encoded_once_for_all_its_labels():
    classifier, texts, batch = labelled(CAML)
    counts = texts_read(classifier)
    outputs = classifier(batch)
    assert counts == [len(texts)]
    for row, single in enumerate(each_alone(classifier, batch)):
        [logits] = single.logits
        [attention] = single.attention
        assert_close(outputs.logits[row], logits)
        assert_close(outputs.attention[row], attention)


def test_a_text_that_was_changed_for_one_label_is_not_taken_for_the_others():
    classifier, _, batch = labelled(CAML)
    has_three_words = batch.content.sum(1) > 2
    batch = batch.rows(has_three_words)
    row = torch.arange(len(batch))
    first_or_second_word = 1 + row % 2
    shortened = batch.without(row, first_or_second_word)

    outputs = classifier(shortened)

    expected = [single.logits for single in each_alone(classifier, shortened)]
    assert_close(outputs.logits, torch.cat(expected))
    texts, text = shortened.distinct_texts()
    assert len(texts) == len(batch)
    assert_close(texts.ids[text], shortened.ids)


def test_gradients_of_a_text_are_those_of_all_its_labels_together():
    classifier, _, batch = labelled(LAAT)
    parameters = list(classifier.parameters())
    yes_logits = classifier(batch).logits[:, 1]
    gradients = torch.autograd.grad(yes_logits.sum(), parameters)
    for single in each_alone(classifier, batch):
        yes_logit = single.logits[:, 1]
        yes_logit.sum().backward()
    for gradient, parameter in zip(gradients, parameters, strict=True):
        assert_close(gradient, parameter.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("attention", [CAML, LAAT])
def test_every_label_is_exact_in_its_own_attention(attention):
    classifier, _, batch = labelled(attention)
    outputs, readout = toy_readout(classifier, batch)
    generator = torch.Generator().manual_seed(0)
    shape = (3, *batch.ids.shape)
    noise = torch.rand(shape, generator=generator, dtype=torch.float64)
    mass = noise * readout.content
    moved = mass / mass.sum(-1, keepdim=True)
    decoded = classifier.decoder.decode(outputs.hidden, moved, outputs.query)
    assert_close(readout.logits(moved), decoded)
    assert_close(readout.logits(readout.attention), outputs.logits)


def smallest_by_enumeration(weights, margins):
    """The fewest words whose erasure turns the answer to a label; -1: no set does."""
    words = range(len(weights))
    says_yes = weights @ margins > 0
    for size in words[1:]:
        for erased in itertools.combinations(words, size):
            remaining_weights = np.delete(weights, erased)
            remaining_margins = np.delete(margins, erased)
            still_says_yes = remaining_weights @ remaining_margins > 0
            if still_says_yes != says_yes:
                return size
    return -1


def test_the_smallest_set_of_a_label_is_that_of_all_subsets_in_both_directions():
    directions = set()
    for seed in range(3):
        classifier, _, batch = labelled(CAML, seed=seed)
        _, readout = toy_readout(classifier, batch)
        search = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
        no, yes = readout.position_logits.unbind(-1)
        margins = yes - no
        for row, content in enumerate(readout.content):
            weights = readout.attention[row, content].numpy()
            words_margins = margins[row, content].numpy()
            smallest = smallest_by_enumeration(weights, words_margins)
            assert search.size[row] == smallest, (seed, row)
            if smallest != -1:
                says_yes = weights @ words_margins > 0
                directions.add(bool(says_yes))
    assert directions == {True, False}


@pytest.mark.parametrize("label", range(LABELS))
def test_the_shapley_values_of_a_label_are_those_of_all_subsets(label):
    classifier, _, batch = labelled(LAAT)
    _, readout = toy_readout(classifier, batch)
    payoffs = readout.position_logits - readout.unattended[:, None]
    values = attention_shapley(readout.attention, payoffs, readout.content).values
    for row in range(label, len(batch), LABELS):
        content = readout.content[row]
        weights = readout.attention[row, content].numpy()
        payoffs_of_yes = payoffs[row, content, 1].numpy()
        expected = shapley_of_means(weights, payoffs_of_yes)
        assert_close(values[row, content, 1], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("attention", [CAML, LAAT])
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_leave_one_out_of_a_label_is_the_model_without_the_word(attention, encoder):
    classifier, _, batch = labelled(attention, encoder=encoder)
    outputs, readout = toy_readout(classifier, batch)
    subject = Subject(classifier, batch, outputs, readout)
    scores = LeaveOneOut(tolerance=0.0).scores(subject)
    predictions = outputs.logits.softmax(-1)
    lengths = batch.content.sum(-1)
    rows_of_several_words = (lengths > 1).nonzero()
    for [row] in rows_of_several_words[::3].tolist():
        text = batch.rows(torch.tensor([row]))
        for [word] in batch.content[row].nonzero().tolist():
            shortened = text.without(torch.tensor([0]), torch.tensor([word]))
            with torch.no_grad():
                (prediction,) = classifier(shortened).logits.softmax(-1)
            change = prediction - predictions[row]
            distance = change.abs().sum() / 2
            assert_close(scores[row, word], distance)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (partial(LabelAttention, 4), "no label is asked for: add task=labels"),
        (partial(LabelDecoder, 4, 2), "no or yes to one label: add task=labels"),
        (partial(LabelDecoder, 4, 3, query_size=8), "no or yes to one label"),
    ],
    ids=["attention", "decoder", "decoder of three classes"],
)
def test_texts_without_a_label_to_ask_for_are_refused(build, message):
    with pytest.raises(UserError, match=message):
        build()


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


def windows_of(column):
    """A column of words in windows of seven."""
    windows = []
    for start in range(0, len(column), WINDOW):
        end = start + WINDOW
        windows.append(column[start:end])
    return windows


def pairs_of_examples(runs):
    """Each text over words, and over windows."""
    texts = examples_of(runs["word"]).to_dict("records")
    windows = examples_of(runs["sentence"]).to_dict("records")
    return zip(texts, windows, strict=True)


def test_over_windows_a_run_predicts_what_it_predicts_over_words(runs):
    assert runs["word"] != runs["sentence"]
    for over_words, over_windows in pairs_of_examples(runs):
        assert_allclose(over_windows["probability"], over_words["probability"], atol=1e-4)
        tokens = [" ".join(window) for window in windows_of(over_words["tokens"])]
        assert list(over_windows["tokens"]) == tokens


def test_over_windows_the_weights_of_the_words_are_added_up(runs):
    for over_words, over_windows in pairs_of_examples(runs):
        for place, weights in enumerate(windows_of(over_words["attention"])):
            total = over_windows["attention"][place]
            inner_weights = np.array(over_windows["word_attention"][place])
            assert total == pytest.approx(weights.sum(), rel=1e-4)
            assert_allclose(inner_weights * total, weights, atol=1e-4)


@pytest.fixture(scope="module")
def windows(runs):
    """The results over windows, and how many windows each text has."""
    examples = examples_of(runs["sentence"]).set_index("example_id")
    return read_results(runs["sentence"]), examples["tokens"].map(len)


def test_over_windows_every_probe_has_numbers(windows):
    results, _ = windows
    assert set(results["probe"]) >= {"labels", "erasure", "permutation", "single_weight", "swaps"}


@pytest.mark.parametrize("metric", ["word_share", "label_value"])
def test_over_windows_every_number_of_a_position_is_one_of_a_window(windows, metric):
    results, lengths = windows
    rows = results[results["metric"] == metric]
    counts = rows.groupby("example_id").size()
    assert len(counts) == len(lengths)  # 6 texts with 3 codes each
    assert counts.tolist() == lengths[counts.index].tolist()


def test_over_windows_a_smallest_set_is_one_of_windows(windows):
    results, lengths = windows
    rows = results[results["metric"] == "yes_to_no"]
    sizes = rows["value"].dropna()
    assert len(sizes)
    assert (sizes <= lengths.max()).all()


def test_the_sheet_says_that_it_holds_for_sentences(runs):
    over_sentences = read_run(runs["sentence"])
    over_words = read_run(runs["word"])
    assert "holds for sentences" in remarks_on(over_sentences)
    assert "holds for sentences" not in remarks_on(over_words)


def test_a_run_over_windows_explains_new_texts_over_windows(runs):
    example = examples_of(runs["word"]).iloc[0]
    text = " ".join(example["tokens"])
    [label] = example["question"]
    explanation = load_run(runs["sentence"]).explain([text], [label])
    expected = examples_of(runs["sentence"])["attention"].iloc[0]
    assert_allclose(explanation["attention"][0], expected, atol=1e-5)
