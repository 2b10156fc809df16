from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.core.readout import Readout
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.evidence.deciding_words import (
    ROUNDED_METRIC,
    SHARE_METRICS,
    share_on_deciding_words,
)
from attnprobe.importance.base import Subject
from attnprobe.importance.word_swaps import (
    Filler,
    KeptWords,
    Swapper,
    WordEffects,
    effects_of_words,
    in_float32,
    prefixes,
)
from attnprobe.models.base import Model, Unit
from attnprobe.models.encoders import LSTMEncoder
from attnprobe.probes.swaps import Swaps
from tests.probes.tables import subject_of, values
from tests.toys import VOCABULARY, rows_of, toy_batch, toy_classifier


def split_of(texts, **columns):
    """Texts, as lists of numbers of words from 4 on, as a split."""
    words = [np.array(text, np.int32) for text in texts]
    columns["labels"] = np.zeros(len(texts), np.int64)
    return TextSplit(
        example_id=np.arange(len(texts)),
        words=Ragged.of(words, np.int32),
        vocabulary_id=np.arange(64),
        columns=columns,
        classes=["0", "1"],
    )


def filler_of(split):
    rows = range(len(split))
    return Filler.of(split[[row]] for row in rows)


def every_word(batch):
    return batch.content


class Voting(Model):
    """A model without an encoder: each word votes for class 1 by its number's weight; the attention
    is what it is told, over the words that it is told it sees."""

    task = Task.SINGLE_LABEL
    classes = 2

    def __init__(self, votes, focus, sees=every_word):
        super().__init__()
        self.votes = votes
        self.focus = focus
        self.sees = sees

    def forward(self, batch):
        seen = self.sees(batch)
        focus = self.focus(batch)
        weights = torch.where(seen, focus, 0.0).double()
        attention = weights / weights.sum(-1, keepdim=True)
        return Outputs(
            logits=self.logits_of(batch),
            attention=attention,
            scores=attention.log(),
            hidden=attention.unsqueeze(-1),
            content=seen,
        )

    def logits_of(self, batch):
        votes = self.votes[batch.ids]
        score = torch.where(batch.content, votes, 0).sum(-1)
        return torch.stack([torch.zeros_like(score), score], -1)

    def readout(self, batch, outputs):
        logits = outputs.logits.double()

        def decode(weights):
            leading_axes = weights.shape[:-1]
            return logits.expand(*leading_axes, self.classes)

        return Readout(
            outputs.attention,
            outputs.content,
            batch.example_id,
            self.task,
            decode=decode,
        )

    def inputs(self, batch):
        raise NotImplementedError

    outputs_from = without = inputs


def measured(split, model, **settings):
    probe = Swaps(**settings)
    probe.prepare({"test": split})
    batch = split[range(len(split))]
    outputs = model(batch)
    readout = model.readout(batch, outputs)
    subject = Subject(model, batch, outputs, readout)
    return values(probe, subject)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def test_words_that_are_not_kept_are_those_of_the_filler():
    split = split_of([[4, 5, 6, 7], [14, 15, 16]])
    filler = filler_of(split)
    swapper = Swapper(toy_classifier(), split[[0]], filler)
    kept = torch.tensor(
        [
            [True, False, True, False],
            [False, False, False, False],
        ]
    )
    drawn = torch.tensor(
        [
            [6, 5, 4, 3],
            [6, 5, 4, 0],
        ]
    )

    variants = swapper.swapped(kept, drawn)

    assert filler.columns["ids"].tolist() == [4, 5, 6, 7, 14, 15, 16]
    assert variants.ids.tolist() == [
        [2, 4, 15, 6, 7, 3],
        [2, 16, 15, 14, 4, 3],
    ]
    assert variants.mask.all()


def test_what_is_known_of_a_word_comes_with_it():
    """The second word of the first text is replaced by the last word of the second text."""
    marks = [
        np.array([1, 0], bool),
        np.array([0, 1], bool),
    ]
    notes = [
        np.array([0.1, 0.2]),
        np.array([0.3, 0.4]),
    ]
    split = split_of(
        [[4, 5], [6, 7]],
        rationale=Ragged.of(marks, bool),
        note=Ragged.of(notes, np.float64),
    )
    swapper = Swapper(toy_classifier(), split[[0]], filler_of(split))
    kept = torch.tensor([[True, False]])
    drawn = torch.tensor([[2, 3]])

    variants = swapper.swapped(kept, drawn)

    words = slice(1, 3)
    assert variants.ids[0, words].tolist() == [4, 7]
    assert variants.rationale[0, words].tolist() == [True, True]
    assert variants.extra["note"][0, words].tolist() == [0.1, 0.4]


FILLER_LENGTH = 10
"""Words of the two texts of `draws`."""


SAMPLES = 20_000


@pytest.fixture(scope="module")
def draws():
    """Filler for three places, often: `[samples, places]`."""
    first_text = [4, 5, 6, 7]
    second_text = [14, 15, 16, 17, 18, 19]
    filler = filler_of(split_of([first_text, second_text]))
    segments = np.zeros(3, np.int64)
    return filler.draw(segments, SAMPLES, seeded(0))


def assert_uniform(numbers, kinds, errors):
    """Each of the kinds is drawn alike often, but for so many standard errors of its share."""
    samples = len(numbers)
    share = 1 / kinds
    variance = share * (1 - share) / samples
    tolerance = errors * variance**0.5
    counts = torch.bincount(numbers, minlength=kinds)
    shares = counts / samples
    assert shares.tolist() == pytest.approx([share] * kinds, abs=tolerance)


@pytest.mark.parametrize("place", range(3))
def test_every_word_of_the_texts_is_as_likely_to_be_filler_at_every_place(draws, place):
    assert_uniform(draws[:, place], FILLER_LENGTH, errors=4)


def test_the_filler_of_a_place_says_nothing_about_that_of_the_next(draws):
    first = draws[:, 0]
    second = draws[:, 1]
    pairs = FILLER_LENGTH * first + second
    assert_uniform(pairs, FILLER_LENGTH**2, errors=5)


def test_a_text_of_a_pair_gets_the_words_of_its_own_kind():
    filler_segments = np.array([0, 0, 1, 1])
    filler = Filler({"ids": torch.arange(4)}, segment=filler_segments)
    segments = np.array([0, 1, 1])
    drawn = filler.draw(segments, 100, seeded(0))
    for_first_text = drawn[:, 0]
    for_second_text = drawn[:, 1:]
    assert set(for_first_text.tolist()) == {0, 1}
    assert set(for_second_text.flatten().tolist()) == {2, 3}


PIECE_COLUMNS = ("pieces", "piece_word", "piece_kind")
TEXTS_IN_PIECES = [
    "unable to see the film",
    "music seeing people able seeable",
    "a long story able dull",
]
# a first word stays, as some tokenizers cut it otherwise than the words of the filler
KEPT = torch.tensor(
    [
        [1, 1, 1, 0, 0],
        [1, 0, 0, 1, 1],
        [1, 0, 0, 0, 0],
    ],
    dtype=torch.bool,
)


@pytest.fixture(params=["bert", "roberta"])
def pieces_model(request):
    pytest.importorskip("transformers")
    from tests.models.pretrained.families import classifier

    return classifier(request.param)


@pytest.fixture
def pieces_swapper(pieces_model):
    """The first text, and the words of all texts but their first ones as filler."""
    from tests.models.pretrained.families import batch_of

    texts = [batch_of(pieces_model, [text]) for text in TEXTS_IN_PIECES]
    return Swapper(pieces_model, texts[0], Filler.of(texts))


FILLER_WORDS = [word for text in TEXTS_IN_PIECES for word in text.split()[1:]]
DRAWN = torch.tensor(
    [
        [0, 5, 2, 4, 7],
        [8, 3, 6, 1, 10],
        [4, 4, 7, 2, 9],
    ]
)


@pytest.mark.parametrize("row", range(3))
def test_words_come_with_all_their_pieces(pieces_model, pieces_swapper, row):
    from tests.models.pretrained.families import batch_of

    filler = [FILLER_WORDS[number] for number in DRAWN[row]]
    text_words = TEXTS_IN_PIECES[0].split()
    words = np.where(KEPT[row], text_words, filler)
    expected = batch_of(pieces_model, [" ".join(words)])

    variants = pieces_swapper.swapped(KEPT, DRAWN)

    length = expected.pieces.shape[1]
    for name in PIECE_COLUMNS:
        column = getattr(variants, name)[row, :length]
        (expected_column,) = getattr(expected, name)
        assert column.tolist() == expected_column.tolist(), name
    padding = variants.piece_word[row, length:]
    assert (padding == -2).all()


def test_of_a_variant_that_is_too_long_the_last_words_lose_pieces(pieces_swapper):
    swapper = replace(pieces_swapper, longest=6)
    variants = swapper.swapped(KEPT, DRAWN)
    lengths = (variants.piece_word != -2).sum(-1)
    assert int(lengths.max()) == 6
    for words, length in zip(variants.piece_word, lengths, strict=True):
        assert words[length - 1] == -1  # what closes the text stays


@pytest.mark.parametrize("words", [2, 3, 9])
def test_sets_have_one_word_to_all_but_one_alike_often(words):
    generator = seeded(1)
    sizes = words - 1
    keys = torch.rand(8 * sizes, words, generator=generator, dtype=torch.float64)

    chosen = prefixes(keys, generator)

    sizes_chosen = chosen.sum(-1)
    counts = torch.bincount(sizes_chosen, minlength=words + 1)
    assert counts.tolist() == [0, *[8] * sizes, 0]
    for row, is_chosen in zip(keys, chosen, strict=True):
        chosen_keys = row[is_chosen]
        other_keys = row[~is_chosen]
        assert chosen_keys.min() > other_keys.max()


@pytest.mark.parametrize("encoder", ["lstm", "cnn", "transformer"])
def test_the_fast_pass_says_what_the_model_says(encoder):
    """In float32, with each distinct word looked up once: to 1e-6 of a probability."""
    draw = np.random.default_rng(0)
    split = split_of(draw.integers(4, 20, (6, 9)))
    filler = filler_of(split)
    model = toy_classifier(encoder, spread=3).double()

    exact_swapper = Swapper(model, split[[0]], filler)
    fast_swapper = Swapper(in_float32(model), split[[0]], filler)
    slow = exact_swapper.pairs(60, 1.0, seeded(0))
    fast = fast_swapper.pairs(60, 1.0, seeded(0))

    assert_close(fast.with_set, slow.with_set, atol=1e-6, rtol=0, check_dtype=False)
    assert_close(fast.without_set, slow.without_set, atol=1e-6, rtol=0, check_dtype=False)
    assert slow.with_set[:, 0].std() > 1e-3  # the words of the sets do something


@pytest.mark.parametrize("encoder", ["lstm", "cnn", "transformer"])
def test_products_in_bfloat16_change_a_probability_by_little(encoder, monkeypatch):
    """Also those of an LSTM of long inputs, which takes its own steps where it can."""
    monkeypatch.setattr(LSTMEncoder, "_has_long_inputs", True)
    draw = np.random.default_rng(0)
    split = split_of(draw.integers(4, 20, (6, 9)))
    filler = filler_of(split)
    model = toy_classifier(encoder, spread=3)

    fine_swapper = Swapper(in_float32(model), split[[0]], filler)
    rounding = in_float32(model, products="bfloat16")
    coarse_swapper = Swapper(rounding, split[[0]], filler)
    fine = fine_swapper.pairs(60, 1.0, seeded(0))
    coarse = coarse_swapper.pairs(60, 1.0, seeded(0))

    change = (coarse.with_set - fine.with_set).abs().max()
    spread_over_sets = fine.with_set[:, 0].std()
    assert 0 < change < spread_over_sets / 10


def test_the_probe_multiplies_in_the_precision_of_its_setting():
    draw = np.random.default_rng(0)
    split = split_of(draw.integers(4, 20, (30, 9)))
    model = toy_classifier("cnn", spread=3)
    fine = measured(split, model)
    coarse = measured(split, model, products="bfloat16")
    assert ROUNDED_METRIC not in fine
    assert (coarse[ROUNDED_METRIC] == 1).all()
    assert not torch.equal(coarse["swap_strength"], fine["swap_strength"])
    assert_close(coarse["swap_strength"], fine["swap_strength"], atol=0, rtol=0.1)
    assert shared(coarse).value == pytest.approx(shared(fine).value, abs=0.05)


@pytest.mark.parametrize("words", [7, 70])
def test_the_effects_are_those_of_least_squares(words):
    """Also with more words than sets, where a smaller system is solved.

    The ridge is one more equation for each word: its effect is 0.
    """
    generator = seeded(0)
    kept = torch.rand(50, words, generator=generator) < 0.5
    sides = 2 * kept.double() - 1
    change = torch.randn(50, 3, generator=generator, dtype=torch.float64)

    ridge = np.eye(words)
    no_effect = np.zeros((words, 3))
    equations = np.vstack([sides, ridge])
    right_sides = np.vstack([change, no_effect])
    expected, *_ = np.linalg.lstsq(equations, right_sides)

    effects = effects_of_words(sides, change)
    assert effects.numpy() == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("estimate", [KeptWords.effects, KeptWords.effects_in_own_context])
def test_both_halves_find_what_the_words_of_a_linear_model_do(estimate):
    kept = torch.rand(4000, 5, generator=seeded(0)) < 0.5
    effects_on_class_1 = torch.tensor([0.3, 0.1, 0.0, -0.2, 0.0]).double()
    truth = torch.stack([effects_on_class_1, -effects_on_class_1], -1)
    sets = KeptWords(
        kept,
        with_set=kept.double() @ truth,
        without_set=(~kept).double() @ truth,
    )

    effects = estimate(sets)

    assert_close(effects.first, truth, atol=2e-3, rtol=0)
    assert_close(effects.second, truth, atol=2e-3, rtol=0)
    assert effects.strongest == 0
    assert effects.strength == pytest.approx(0.09, abs=2e-3)
    assert effects.reliability > 0.99
    # whole from a third of the strongest effect on, whatever its sign; 0 for nothing
    assert effects.shares.tolist() == pytest.approx([1, 1, 0, 1, 0], abs=0.1)


def assert_zero_on_average(numbers):
    """But for four standard errors of the mean."""
    standard_error = numbers.std() / len(numbers) ** 0.5
    assert numbers.mean().abs() < 4 * standard_error


def test_the_square_of_nothing_is_0_on_average():
    """The null: the square of one noisy estimate would be positive."""
    generator = seeded(0)
    first, second = torch.randn(2, 4000, 1, generator=generator, dtype=torch.float64)
    effects = WordEffects(first, second)
    assert_zero_on_average(effects.squared)
    assert first.square().mean() > 0.9


TEXTS = 120
WORDS = 8


def words_decide(count, vote):
    """Texts of filler with this many words, 40 or 41, that decide, at any places."""
    draw = np.random.default_rng(0)
    texts = [draw.integers(4, 34, WORDS) for _ in range(TEXTS)]
    for number, text in enumerate(texts):
        places = draw.choice(WORDS, count, replace=False)
        text[places] = 40 + number % 2
    votes = torch.zeros(64)
    votes[40] = -vote
    votes[41] = vote
    return split_of(texts), votes


def decides(batch):
    """The words that decide."""
    return batch.ids >= 40


FOCUS = {
    "right": lambda batch: torch.where(decides(batch), 1.0, 0.02),
    "first": lambda batch: torch.where(batch.content.cumsum(-1) == 1, 1.0, 0.02),
    "avoids": lambda batch: torch.where(decides(batch), 0.0, 1.0),
    "even": lambda batch: torch.ones_like(batch.ids).double(),
}


def shared(numbers):
    """The share of attention on the words that decide, with its interval, from its metrics."""
    columns = []
    for name in SHARE_METRICS:
        one_run = numbers[name].numpy()[None]
        columns.append(one_run)
    return share_on_deciding_words(*columns)


def beyond_chance(attention, is_deciding, chance):
    """The mean weight on what decides, from 0 by chance to 1."""
    weight_on_deciding = (attention * is_deciding).sum(-1)
    mean_weight = weight_on_deciding.mean().item()
    return (mean_weight - chance) / (1 - chance)


@pytest.fixture(scope="module")
def numbers_by_focus():
    """Where attention lies → what is measured; one word of each text decides."""
    split, votes = words_decide(1, 5.0)
    numbers = {}
    for kind, focus in FOCUS.items():
        model = Voting(votes, focus)
        numbers[kind] = measured(split, model)
    return numbers


@pytest.mark.parametrize("kind", FOCUS)
def test_the_share_is_the_weight_on_the_word_that_decides_beyond_chance(numbers_by_focus, kind):
    """What is known of this model: (weight − 1/8) / (1 − 1/8)."""
    split, votes = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    attention = Voting(votes, FOCUS[kind])(batch).attention
    expected = beyond_chance(attention, decides(batch), 1 / WORDS)
    share = shared(numbers_by_focus[kind])
    assert share.value == pytest.approx(expected, abs=0.06)
    assert share.low < expected < share.high


def test_right_attention_is_a_yes(numbers_by_focus):
    assert shared(numbers_by_focus["right"]).low > 0.4


@pytest.mark.parametrize("kind", ["first", "avoids", "even"])
def test_all_other_attention_is_a_no(numbers_by_focus, kind):
    assert shared(numbers_by_focus[kind]).high < 0.4


def test_the_top_word_is_the_strongest(numbers_by_focus):
    on_right_word = numbers_by_focus["right"]["top_word_effect"]
    on_first_word = numbers_by_focus["first"]["top_word_effect"]
    assert on_right_word.mean() > 0.95
    assert on_first_word.mean() < 0.3


@pytest.mark.parametrize("kind", FOCUS)
def test_what_words_do_is_the_same_whatever_attention_does(numbers_by_focus, kind):
    shares = numbers_by_focus[kind]["word_share"]
    shares_under_right_attention = numbers_by_focus["right"]["word_share"]
    assert_close(shares, shares_under_right_attention, atol=0, rtol=0, equal_nan=True)

    split, _ = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    is_deciding = decides(batch)
    is_filler = batch.content & ~is_deciding
    passes = numbers_by_focus[kind]["swap_passes"]
    assert shares[is_deciding].mean() > 0.95
    assert shares[is_filler].abs().mean() < 0.1
    assert (passes == 400).all()


def test_redundant_words_are_found_though_none_is_needed():
    """Three words, each of which is enough: leaving one out does nothing."""
    split, votes = words_decide(3, 20.0)
    numbers = measured(split, Voting(votes, FOCUS["right"]))
    assert shared(numbers).low > 0.5


def test_the_temperature_of_the_model_changes_nothing():
    split, votes = words_decide(1, 5.0)
    warm_model = Voting(votes, FOCUS["right"])
    hot_model = Voting(votes / 50, FOCUS["right"])
    warm = measured(split, warm_model)
    hot = measured(split, hot_model)
    for name in SHARE_METRICS:
        assert torch.allclose(warm[name], hot[name], atol=1e-4), name


IN_SIGHT = 4
"""Words of a text that a window sees."""


def in_window(batch):
    """The places of a window that looks at the word that decides, and at three others."""
    noise = torch.rand(batch.ids.shape, generator=seeded(1))
    score = noise + 2 * decides(batch)
    score = score.masked_fill(~batch.content, -1)
    nearest = score.topk(IN_SIGHT).indices
    window = torch.zeros_like(batch.content)
    return window.scatter(1, nearest, value=True)


@pytest.mark.parametrize("kind", ["right", "even"])
def test_words_that_are_not_seen_are_no_chance(kind):
    """What is known of this model: (weight − 1/4) / (1 − 1/4), of 8 words of which it sees 4."""
    split, votes = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    model = Voting(votes, FOCUS[kind], in_window)
    attention = model(batch).attention
    expected = beyond_chance(attention, decides(batch), 1 / IN_SIGHT)

    numbers = measured(split, model, importances=["attention"])

    share = shared(numbers)
    assert share.value == pytest.approx(expected, abs=0.06)
    assert share.low <= expected <= share.high
    assert torch.allclose(numbers["swap_excess_attention"], numbers["swap_excess"])
    if kind == "even":  # the null, exactly
        assert numbers["swap_excess"].abs().max() < 1e-12
        assert expected == pytest.approx(0)


def first_word(batch):
    return batch.content & (batch.content.cumsum(-1) == 1)


def test_a_text_of_which_one_word_is_seen_has_no_number():
    split, votes = words_decide(1, 5.0)
    model = Voting(votes, FOCUS["even"], sees=first_word)
    numbers = measured(split, model)
    assert numbers["swap_excess"].isnan().all()


def test_the_own_weights_in_random_order_have_no_share():
    """The null, by symmetry."""
    split, votes = words_decide(1, 5.0)
    noise = torch.rand(TEXTS, WORDS + 2, generator=seeded(3))
    weights = noise**6
    model = Voting(votes, lambda batch: weights[batch.example_id])
    numbers = measured(split, model)
    assert_zero_on_average(numbers["swap_excess"])


def test_a_class_that_is_known_by_what_it_lacks_has_no_weight():
    """Class 1 has a marker, class 0 none: attention on the first word of a text is on nothing."""
    split, _ = words_decide(1, 5.0)
    votes = torch.zeros(64)
    votes[41] = 10.0
    bias = torch.tensor([0.0, -5.0])

    class Absence(Voting):
        def logits_of(self, batch):
            return super().logits_of(batch) + bias

    numbers = measured(split, Absence(votes, FOCUS["first"]))

    strength = numbers["swap_strength"]
    without_marker = strength[0::2]
    with_marker = strength[1::2]
    assert without_marker.mean() < 0.1 * with_marker.mean()
    assert shared(numbers).high < 0.4


def test_a_model_that_is_too_noisy_gets_more_passes():
    draw = np.random.default_rng(0)
    split = split_of(draw.integers(4, 34, (30, 25)))
    votes = torch.from_numpy(draw.normal(size=64)).float()
    model = Voting(votes, FOCUS["even"])
    numbers = measured(split, model, texts=20, passes=100, most_passes=400)
    passes = numbers["swap_passes"]
    defined_passes = passes[passes.isfinite()]
    assert (defined_passes > 100).all()


def test_without_any_effect_there_are_no_more_passes():
    split, votes = words_decide(1, 5.0)
    model_without_votes = Voting(votes * 0, FOCUS["even"])
    numbers = measured(split, model_without_votes)
    assert (numbers["swap_passes"] == 400).all()
    assert "no word moves the prediction" in shared(numbers).unasked


def test_the_most_passes_are_no_fewer_than_the_first():
    with pytest.raises(UserError, match="most_passes=200: expected at least passes=400"):
        Swaps(most_passes=200)


def test_an_importance_gets_the_same_number_as_attention():
    split, votes = words_decide(1, 5.0)
    model = Voting(votes, FOCUS["right"])
    numbers = measured(split, model, importances=["attention", "random"])
    assert torch.allclose(numbers["swap_excess_attention"], numbers["swap_excess"])
    assert_zero_on_average(numbers["swap_excess_random"])


@pytest.fixture(scope="module")
def both_ways():
    """The numbers of four texts in one batch, and in a batch of its own each."""
    batch = toy_batch([7, 12, 3, 1])
    classifier = toy_classifier(spread=4)
    texts = []
    for ids, content in zip(batch.ids, batch.content, strict=True):
        words = ids[content]
        texts.append(words.tolist())
    donors = [
        [9, 8, 7],
        [5, 5, 5, 5, 5, 5, 21],
        [4, 20, 29, 9, 9, 9, 9, 11, 12, 4, 4, 5],
    ]
    split = split_of([*texts, *donors])
    split = replace(split, example_id=np.arange(100, 107))
    probe = Swaps(passes=100, most_passes=100)
    probe.prepare({"test": split})

    in_one_batch = values(probe, subject_of(classifier, batch))
    in_own_batches = []
    for row in range(4):
        subject = subject_of(classifier, rows_of(batch, [row]))
        in_own_batches.append(values(probe, subject))
    return in_one_batch, in_own_batches


@pytest.mark.parametrize("row", range(4))
def test_a_text_in_a_batch_of_its_own_has_the_same_numbers(both_ways, row):
    in_one_batch, in_own_batches = both_ways
    for name, column in in_one_batch.items():
        if column.ndim == 1:
            number = column[row].item()
            expected = in_own_batches[row][name].item()
            assert number == pytest.approx(expected, abs=1e-6, nan_ok=True), name


def test_a_text_of_one_word_has_no_number(both_ways):
    in_one_batch, _ = both_ways
    is_undefined = in_one_batch["swap_excess"].isnan()
    assert is_undefined.tolist() == [False, False, False, True]


@pytest.mark.parametrize("number", range(2))
def test_each_of_two_outcomes_is_moved_as_far_as_both_are(number):
    """The null: of two classes each one says what both say together."""
    generator = seeded(0)
    first = torch.randn(9, 1, generator=generator, dtype=torch.float64)
    noise = torch.randn(9, 1, generator=generator, dtype=torch.float64)
    second = first + 0.3 * noise
    effects = WordEffects(
        torch.cat([first, -first], 1),
        torch.cat([second, -second], 1),
    )

    effects_on_class = effects.of_class(number)

    assert_close(effects_on_class.squared, effects.squared)
    assert_close(effects_on_class.shares, effects.shares)
    assert effects_on_class.strength == pytest.approx(effects.strength)


def test_the_words_of_a_class_are_not_those_of_another_one():
    """The first word moves class 0 at the cost of 1, the second 2 at the cost of 1 and of 0."""
    first_word = [0.8, -0.8, 0.0]
    second_word = [-0.1, -0.5, 0.6]
    third_word = [0.0, 0.0, 0.0]
    effects = torch.tensor([first_word, second_word, third_word]).double()

    effect = WordEffects(effects, effects)
    class_0 = effect.of_class(0)
    class_1 = effect.of_class(1)
    class_2 = effect.of_class(2)

    assert class_0.strongest == 0
    assert class_1.strongest == 0
    assert class_2.strongest == 1
    share_of_second_word = class_0.shares[1].item()
    third_of_strongest = 0.8 / 3
    assert share_of_second_word == pytest.approx((0.1 / third_of_strongest) ** 2)
    assert class_1.shares.tolist() == pytest.approx([1, 1, 0])
    assert class_2.shares.tolist() == pytest.approx([0, 1, 0])


class VotingForThree(Voting):
    """The same with a vote of each word for each of three classes."""

    classes = 3

    def logits_of(self, batch):
        is_word = batch.content.unsqueeze(-1)
        votes = self.votes[batch.ids]
        return torch.where(is_word, votes, 0).sum(1)


ON = {
    "word of class 0": lambda batch: torch.where(batch.ids == 40, 1.0, 0.001),
    "word of class 2": lambda batch: torch.where(batch.ids == 41, 1.0, 0.001),
}


def shares_of_three_classes(kind):
    """Class → the share of attention on the words that decide it; None: on those of all classes.

    One word of each text is for class 0 and against 1, another for class 2 and against both.
    """
    draw = np.random.default_rng(0)
    texts = []
    for _ in range(60):
        text = draw.integers(4, 34, 12)
        places = draw.choice(12, 2, replace=False)
        text[places] = 40, 41
        texts.append(text)
    votes = torch.zeros(64, 3)
    votes[40] = torch.tensor([1.0, -1.0, 0.0])
    votes[41] = torch.tensor([-1.0, -1.0, 2.0])
    model = VotingForThree(votes, ON[kind])

    numbers = measured(split_of(texts), model)

    shares = {None: shared(numbers).value}
    for number in range(3):
        excess = numbers[f"output_excess_class_{number}"].numpy()
        room = numbers[f"output_room_class_{number}"].numpy()
        strength = numbers[f"output_strength_class_{number}"].numpy()
        interval = share_on_deciding_words(excess[None], room[None], strength[None])
        shares[number] = interval.value
    return shares


def test_attention_may_be_right_for_every_class():
    share = shares_of_three_classes("word of class 2")
    assert share[0] > 0.95
    assert share[1] > 0.95
    assert share[2] > 0.95


def test_attention_may_be_right_for_one_class_and_wrong_for_another():
    share = shares_of_three_classes("word of class 0")
    assert share[1] > 0.95
    assert share[2] < 0.3
    assert share[2] < share[None] - 0.1 < share[1] - 0.2


SENTENCE = 2
"""Words of a sentence, four of which are a text of `WORDS`."""


class VotingInSentences(Voting):
    """As `Voting`, with its attention looked at over sentences of two words."""

    unit = Unit.SENTENCE
    gathers_words = True

    def position_of(self, batch):
        number = (batch.content.cumsum(-1) - 1) // SENTENCE
        return torch.where(batch.content, number, -1)

    def forward(self, batch):
        outputs = super().forward(batch)
        attention = in_sentences(outputs.attention).sum(-1)
        return Outputs(
            logits=outputs.logits,
            attention=attention,
            scores=attention.log(),
            hidden=attention.unsqueeze(-1),
            content=torch.ones_like(attention, dtype=torch.bool),
        )


@pytest.fixture(scope="module")
def sentences_by_focus():
    """As `numbers_by_focus`, where words stay or go by sentences."""
    split, votes = words_decide(1, 5.0)
    numbers = {}
    for kind, focus in FOCUS.items():
        model = VotingInSentences(votes, focus)
        numbers[kind] = measured(split, model)
    return numbers


def in_sentences(column):
    """A column of a batch without its markers: `[batch, sentences, SENTENCE]`."""
    words = column[:, 1:-1]
    return words.unflatten(1, (-1, SENTENCE))


@pytest.mark.parametrize("kind", FOCUS)
def test_the_share_of_sentences_is_the_weight_on_the_one_that_decides_beyond_chance(
    sentences_by_focus, kind
):
    split, votes = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    attention = VotingInSentences(votes, FOCUS[kind])(batch).attention
    is_deciding = in_sentences(decides(batch)).any(-1)
    expected = beyond_chance(attention, is_deciding, SENTENCE / WORDS)

    share = shared(sentences_by_focus[kind])
    assert share.value == pytest.approx(expected, abs=0.06)
    assert share.low < expected < share.high

    shares = sentences_by_focus[kind]["word_share"]
    assert shares.shape == is_deciding.shape
    assert shares[is_deciding].mean() > 0.95
    assert shares[~is_deciding].abs().mean() < 0.1


def test_right_attention_over_sentences_is_a_yes_and_even_weights_are_worth_nothing(
    sentences_by_focus,
):
    share_of_right = shared(sentences_by_focus["right"])
    share_of_avoiding = shared(sentences_by_focus["avoids"])
    share_of_even = shared(sentences_by_focus["even"])
    assert share_of_right.low > 0.4
    assert share_of_avoiding.high < 0
    assert share_of_even.value == pytest.approx(0, abs=0.02)


def test_all_words_of_a_sentence_stay_or_none_does():
    """Sentences of three words and of two; the filler's numbers are 50 and 51."""
    split = split_of([[4, 5, 6, 7, 8]])
    filler = filler_of(split_of([[50, 51]]))
    classifier = toy_classifier()
    variants = []

    def run(batch):
        variants.append(batch.ids)
        in_vocabulary = batch.ids.clamp(max=VOCABULARY - 1)
        return classifier(replace(batch, ids=in_vocabulary))

    sentence_of_word = torch.tensor([[-1, 0, 0, 0, 1, 1, -1]])
    swapper = Swapper(run, split[[0]], filler, position=sentence_of_word)
    pairs = swapper.pairs(12, 1.0, seeded(0))

    assert pairs.kept.shape == (12, 2)
    assert (pairs.kept.sum(-1) == 1).all()
    words = torch.cat(variants)[:, 1:-1]
    sentences_kept = torch.cat([pairs.kept, ~pairs.kept])
    words_kept = sentences_kept[:, [0, 0, 0, 1, 1]]
    assert torch.equal(words < 50, words_kept)
