from dataclasses import replace

import numpy as np
import pytest
import torch

from attnprobe.core.batch import Outputs, Task
from attnprobe.core.readout import Readout
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.evidence.deciding_words import PLACEMENT_METRICS, placement_of
from attnprobe.importance.base import Subject
from attnprobe.importance.word_swaps import (
    Swapper,
    donors_of,
    effects_of_words,
    order_by_weight,
    prefixes,
    rearranged,
)
from attnprobe.models.base import Model
from attnprobe.probes.swaps import Swaps
from tests.probes.tables import subject_of, values
from tests.toys import rows_of, toy_batch, toy_classifier


def split_of(texts, **columns):
    """Texts, as lists of numbers of words from 4 on, as a split."""
    words = [np.array(text, np.int32) for text in texts]
    labels = {"labels": np.zeros(len(texts), np.int64)}
    return TextSplit(
        np.arange(len(texts)),
        Ragged.of(words, np.int32),
        np.arange(64),
        labels | columns,
        [],
        ["0", "1"],
    )


class Voting(Model):
    """A model without an encoder: each word votes for class 1 by its number's weight; the attention
    is what it is told."""

    task = Task.SINGLE_LABEL
    classes = 2

    def __init__(self, votes, focus):
        super().__init__()
        self.votes = votes
        self.focus = focus

    def forward(self, batch):
        score = torch.where(batch.content, self.votes[batch.ids], 0).sum(-1)
        logits = torch.stack([torch.zeros_like(score), score], -1)
        weights = torch.where(batch.content, self.focus(batch), 0.0).double()
        attention = weights / weights.sum(-1, keepdim=True)
        return Outputs(logits, attention, attention.log(), attention.unsqueeze(-1), batch.content)

    def readout(self, batch, outputs):
        logits = outputs.logits.double()
        return Readout(
            outputs.attention,
            batch.content,
            batch.example_id,
            self.task,
            decode=lambda weights: logits.expand(*weights.shape[:-1], 2),
        )

    def inputs(self, batch):
        raise NotImplementedError

    outputs_from = without = inputs


def measured(split, model, **settings):
    probe = Swaps(**settings)
    probe.prepare({"test": split})
    batch = split[range(len(split))]
    outputs = model(batch)
    return values(probe, Subject(model, batch, outputs, model.readout(batch, outputs)))


def test_words_change_places_with_those_of_the_donor_from_both_ends():
    text = [4, 5, 6, 7, 8]
    shorter = [14, 15, 16]
    longer = [24, 25, 26, 27, 28, 29, 30]
    split = split_of([text, shorter, longer])
    model = toy_classifier()
    swapper = Swapper(model, model.task, split[[0]], split[[1, 2]])
    replaced = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 0, 1, 0]], dtype=torch.bool)
    variants = swapper.swapped(replaced, torch.tensor([0, 1, 1]))
    assert variants.ids.tolist() == [
        [2, 14, 15, 16, 15, 16, 3],  # three words from the start, two from the end
        [2, 24, 25, 26, 29, 30, 3],
        [2, 4, 25, 6, 29, 8, 3],
    ]
    assert variants.mask.all()


PIECE_COLUMNS = ("pieces", "piece_word", "piece_kind")
TEXTS_IN_PIECES = [
    "unable to see the film",
    "music seeing people able seeable",
    "a long story able dull",
]
REPLACED = torch.tensor([[1, 0, 0, 1, 1], [0, 1, 1, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)
DONOR = torch.tensor([0, 1, 0])


@pytest.fixture(params=["bert", "roberta"])
def pieces_model(request):
    pytest.importorskip("transformers")
    from tests.models.pretrained.families import classifier

    return classifier(request.param)


@pytest.fixture
def pieces_swapper(pieces_model):
    from tests.models.pretrained.families import batch_of

    text = batch_of(pieces_model, TEXTS_IN_PIECES[:1])
    donors = batch_of(pieces_model, TEXTS_IN_PIECES[1:])
    return Swapper(pieces_model, pieces_model.task, text, donors)


@pytest.mark.parametrize("row", range(3))
def test_words_come_with_all_their_pieces(pieces_model, pieces_swapper, row):
    from tests.models.pretrained.families import batch_of

    variants = pieces_swapper.swapped(REPLACED, DONOR)
    words = TEXTS_IN_PIECES[0].split()
    donor_words = TEXTS_IN_PIECES[1 + int(DONOR[row])].split()
    mixed = np.where(REPLACED[row].numpy(), donor_words, words)
    expected = batch_of(pieces_model, [" ".join(mixed)])
    length = expected.pieces.shape[1]
    for name in PIECE_COLUMNS:
        column = getattr(variants, name)[row, :length]
        assert column.tolist() == getattr(expected, name)[0].tolist(), name
    assert (variants.piece_word[row, length:] == -2).all()


def test_of_a_variant_that_is_too_long_the_last_words_lose_pieces(pieces_swapper):
    variants = replace(pieces_swapper, longest=6).swapped(REPLACED, DONOR)
    lengths = (variants.piece_word != -2).sum(-1)
    assert int(lengths.max()) == 6
    for words, length in zip(variants.piece_word, lengths, strict=True):
        assert words[length - 1] == -1  # what closes the text stays


def test_a_text_borrows_of_those_that_are_decided_differently_and_are_as_long():
    split = split_of([[4] * length for length in [5] * 30 + [6] * 30 + [20] * 5])
    decisions = np.array([0, 1] * 15 + [0] * 30 + [1] * 5)
    lengths = split.words.lengths
    # fifteen of its length are fewer than twenty
    donors = donors_of(0, lengths, decisions)
    assert donors.tolist() == [*range(1, 30, 2), *range(60, 65)]
    donors = donors_of(1, lengths, decisions)
    assert donors.tolist() == [*range(0, 30, 2), *range(30, 60)]
    assert not len(donors_of(0, lengths, decisions * 0))


def test_orders_by_weights_are_draws_without_replacement():
    weights = torch.tensor([0.5, 0.3, 0.2])
    keys = order_by_weight(weights, 40_000, torch.Generator().manual_seed(0))
    order = keys.argsort(-1, descending=True)
    for first in range(3):
        share = float((order[:, 0] == first).double().mean())
        assert share == pytest.approx(float(weights[first]), abs=4 * (0.25 / 40_000) ** 0.5)
    after = order[order[:, 0] == 0]
    assert float((after[:, 1] == 1).double().mean()) == pytest.approx(0.6, abs=0.015)


@pytest.mark.parametrize("words", [2, 3, 9])
def test_sets_have_one_word_to_all_but_one_alike_often(words):
    generator = torch.Generator().manual_seed(1)
    keys = torch.rand(8 * (words - 1), words, generator=generator, dtype=torch.float64)
    chosen = prefixes(keys, generator)
    counts = torch.bincount(chosen.sum(-1), minlength=words + 1).tolist()
    assert counts == [0, *[8] * (words - 1), 0]
    for row, is_chosen in zip(keys, chosen, strict=True):
        assert row[is_chosen].min() > row[~is_chosen].max()


def test_the_effects_are_those_of_least_squares():
    generator = torch.Generator().manual_seed(0)
    chosen = torch.rand(50, 7, generator=generator) < 0.5
    truth = torch.randn(7, generator=generator, dtype=torch.float64)
    sides = 2 * chosen.double() - 1
    exact = effects_of_words(chosen, sides @ truth, ridge=1e-9)
    assert torch.allclose(exact, truth, atol=1e-8)
    noisy = torch.randn(50, generator=generator, dtype=torch.float64)
    padded = np.vstack([sides.numpy(), np.sqrt(0.1) * np.eye(7)])
    expected = np.linalg.lstsq(padded, np.r_[noisy.numpy(), np.zeros(7)], rcond=None)[0]
    assert effects_of_words(chosen, noisy).numpy() == pytest.approx(expected, abs=1e-10)


def test_the_same_weights_go_where_the_effects_are():
    weights = torch.tensor([0.1, 0.6, 0.3])
    scores = torch.tensor([5.0, 1.0, 3.0])
    assert rearranged(weights, scores).tolist() == pytest.approx([0.6, 0.1, 0.3])


TEXTS = 120
WORDS = 8


def words_decide(count, vote):
    """Texts of filler with this many words, 40 or 41, that decide, at any places."""
    draw = np.random.default_rng(0)
    texts = [[*draw.integers(4, 34, WORDS)] for _ in range(TEXTS)]
    for number, text in enumerate(texts):
        for place in draw.choice(WORDS, count, replace=False):
            text[place] = 40 + number % 2
    votes = torch.zeros(64)
    votes[40] = -vote
    votes[41] = vote
    return split_of(texts), votes


FOCUS = {
    "right": lambda batch: torch.where(batch.ids >= 40, 1.0, 0.02),
    "first": lambda batch: torch.where(batch.content.cumsum(-1) == 1, 1.0, 0.02),
    "avoids": lambda batch: torch.where(batch.ids >= 40, 0.0, 1.0),
    "even": lambda batch: torch.ones_like(batch.ids).double(),
}


def placed(numbers):
    gain, scale, bound = (numbers[name].numpy()[None] for name in PLACEMENT_METRICS)
    return placement_of(gain, scale, bound)


@pytest.fixture(scope="module")
def numbers_by_focus():
    """Where attention lies → what is measured; one word of each text decides."""
    split, votes = words_decide(1, 5.0)
    return {kind: measured(split, Voting(votes, focus)) for kind, focus in FOCUS.items()}


def test_right_attention_has_placement_1(numbers_by_focus):
    numbers = numbers_by_focus["right"]
    assert placed(numbers).low > 0.9
    assert float(numbers["top_word_effect"].mean()) > 0.95
    gain = float(numbers["swap_gain"].mean())
    assert gain == pytest.approx(float(numbers["swap_best"].mean()), abs=0.1)


def test_attention_on_the_first_word_has_no_placement(numbers_by_focus):
    evidence = placed(numbers_by_focus["first"])
    assert evidence.high < 0.4
    assert evidence.low < 0.1


def test_attention_that_avoids_the_word_has_a_negative_placement(numbers_by_focus):
    assert placed(numbers_by_focus["avoids"]).high < 0


def test_even_attention_is_not_asked_where_it_lies(numbers_by_focus):
    assert "too even" in placed(numbers_by_focus["even"]).unasked


@pytest.mark.parametrize("kind", FOCUS)
def test_the_effects_are_those_of_the_word_that_decides_whatever_attention_does(
    numbers_by_focus, kind
):
    numbers = numbers_by_focus[kind]
    split, _ = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    is_deciding = batch.ids >= 40
    assert numbers["swap_bound"].mean() > 0.9  # the donor decides for the other class
    # half of the time the donor's word that decides stands against it; a filler may take its place
    assert 0.4 < float(numbers["word_effect"][is_deciding].mean()) < 0.8
    of_fillers = numbers["word_effect"][batch.content & ~is_deciding]
    assert float(of_fillers.abs().mean()) < 0.15


def test_redundant_words_are_found_though_none_is_needed():
    """Three words, each of which is enough: leaving one out does nothing."""
    split, votes = words_decide(3, 20.0)
    assert placed(measured(split, Voting(votes, FOCUS["right"]))).low > 0.8


def test_the_own_weights_in_random_order_gain_nothing():
    """The null: by symmetry 0, within four standard errors."""
    split, votes = words_decide(1, 5.0)
    noise = torch.rand(TEXTS, WORDS + 2, generator=torch.Generator().manual_seed(3)) ** 6
    model = Voting(votes, lambda batch: noise[batch.example_id])
    gain = measured(split, model, passes=1600, reach=False)["swap_gain"]
    assert abs(float(gain.mean())) < 4 * float(gain.std()) / TEXTS**0.5


@pytest.fixture(scope="module")
def both_ways():
    """The numbers of four texts in one batch, and in a batch of its own each."""
    batch = toy_batch([7, 12, 3, 1])
    classifier = toy_classifier(spread=4)
    texts = [batch.ids[row][batch.content[row]].tolist() for row in range(4)]
    donors = [
        [9, 8, 7],
        [5, 5, 5, 5, 5, 5, 21],
        [4, 20, 29, 9, 9, 9, 9, 11, 12, 4, 4, 5],
    ]
    split = replace(split_of([*texts, *donors]), example_id=np.arange(100, 107))
    probe = Swaps(passes=100)
    probe.prepare({"test": split})
    probe._decisions = np.arange(7) % 2  # every text has one that is decided differently
    in_one_batch = values(probe, subject_of(classifier, batch))
    in_own_batches = [
        values(probe, subject_of(classifier, rows_of(batch, [row]))) for row in range(4)
    ]
    return in_one_batch, in_own_batches


@pytest.mark.parametrize("row", range(4))
def test_a_text_in_a_batch_of_its_own_has_the_same_numbers(both_ways, row):
    in_one_batch, in_own_batches = both_ways
    for name, column in in_one_batch.items():
        if column.ndim == 1:
            expected = pytest.approx(float(in_own_batches[row][name][0]), abs=1e-6, nan_ok=True)
            assert float(column[row]) == expected, name


def test_a_text_of_one_word_has_no_number(both_ways):
    in_one_batch, _ = both_ways
    assert in_one_batch["swap_gain"][:3].isfinite().all()
    assert in_one_batch["swap_gain"][3].isnan()
