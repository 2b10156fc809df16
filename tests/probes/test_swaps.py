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
from attnprobe.evidence.deciding_words import SHARE_METRICS, share_on_deciding_words
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


def filler_of(split):
    return Filler.of(split[[row]] for row in range(len(split)))


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
        logits = self.logits_of(batch)
        seen = self.sees(batch)
        weights = torch.where(seen, self.focus(batch), 0.0).double()
        attention = weights / weights.sum(-1, keepdim=True)
        return Outputs(logits, attention, attention.log(), attention.unsqueeze(-1), seen)

    def logits_of(self, batch):
        score = torch.where(batch.content, self.votes[batch.ids], 0).sum(-1)
        return torch.stack([torch.zeros_like(score), score], -1)

    def readout(self, batch, outputs):
        logits = outputs.logits.double()
        return Readout(
            outputs.attention,
            outputs.content,
            batch.example_id,
            self.task,
            decode=lambda weights: logits.expand(*weights.shape[:-1], self.classes),
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


def test_words_that_are_not_kept_are_those_of_the_filler():
    split = split_of([[4, 5, 6, 7], [14, 15, 16]])
    filler = filler_of(split)
    assert filler.columns["ids"].tolist() == [4, 5, 6, 7, 14, 15, 16]
    swapper = Swapper(toy_classifier(), split[[0]], filler)
    kept = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0]], dtype=torch.bool)
    variants = swapper.swapped(kept, torch.tensor([[6, 5, 4, 3], [6, 5, 4, 0]]))
    assert variants.ids.tolist() == [[2, 4, 15, 6, 7, 3], [2, 16, 15, 14, 4, 3]]
    assert variants.mask.all()


def test_what_is_known_of_a_word_comes_with_it():
    """The second word of the first text is replaced by the last word of the second text."""
    marks = Ragged.of([np.array([1, 0], bool), np.array([0, 1], bool)], bool)
    notes = Ragged.of([np.array([0.1, 0.2]), np.array([0.3, 0.4])], np.float64)
    split = split_of([[4, 5], [6, 7]], rationale=marks, note=notes)
    swapper = Swapper(toy_classifier(), split[[0]], filler_of(split))
    kept = torch.tensor([[True, False]])
    filler_rows = torch.tensor([[2, 3]])

    variants = swapper.swapped(kept, filler_rows)

    words = slice(1, 3)
    assert variants.ids[0, words].tolist() == [4, 7]
    assert variants.rationale[0, words].tolist() == [True, True]
    assert variants.extra["note"][0, words].tolist() == [0.1, 0.4]


def test_every_word_of_the_texts_is_as_likely_to_be_filler_at_every_place():
    split = split_of([[4, 5, 6, 7], [14, 15, 16, 17, 18, 19]])
    words = 10
    samples = 20_000
    generator = torch.Generator().manual_seed(0)

    drawn = filler_of(split).draw(np.zeros(3, np.int64), samples, generator)

    share = 1 / words
    error = (share * (1 - share) / samples) ** 0.5
    for place in range(3):
        shares = torch.bincount(drawn[:, place], minlength=words) / samples
        assert shares.tolist() == pytest.approx([share] * words, abs=4 * error)

    # and a place's word says nothing about the next one's
    pair_share = share**2
    pair_error = (pair_share * (1 - pair_share) / samples) ** 0.5
    pairs = words * drawn[:, 0] + drawn[:, 1]
    pair_shares = torch.bincount(pairs, minlength=words**2) / samples
    assert pair_shares.tolist() == pytest.approx([pair_share] * words**2, abs=5 * pair_error)


def test_a_text_of_a_pair_gets_the_words_of_its_own_kind():
    filler = Filler({"ids": torch.arange(4)}, np.array([0, 0, 1, 1]))
    drawn = filler.draw(np.array([0, 1, 1]), 100, torch.Generator().manual_seed(0))
    assert set(drawn[:, 0].tolist()) == {0, 1}
    assert set(drawn[:, 1:].flatten().tolist()) == {2, 3}


PIECE_COLUMNS = ("pieces", "piece_word", "piece_kind")
TEXTS_IN_PIECES = [
    "unable to see the film",
    "music seeing people able seeable",
    "a long story able dull",
]
# a first word stays, as some tokenizers cut it otherwise than the words of the filler
KEPT = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 1, 1], [1, 0, 0, 0, 0]], dtype=torch.bool)


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
DRAWN = torch.tensor([[0, 5, 2, 4, 7], [8, 3, 6, 1, 10], [4, 4, 7, 2, 9]])


@pytest.mark.parametrize("row", range(3))
def test_words_come_with_all_their_pieces(pieces_model, pieces_swapper, row):
    from tests.models.pretrained.families import batch_of

    variants = pieces_swapper.swapped(KEPT, DRAWN)
    words = TEXTS_IN_PIECES[0].split()
    lent = [FILLER_WORDS[number] for number in DRAWN[row].tolist()]
    mixed = np.where(KEPT[row].numpy(), words, lent)
    expected = batch_of(pieces_model, [" ".join(mixed)])
    length = expected.pieces.shape[1]
    for name in PIECE_COLUMNS:
        column = getattr(variants, name)[row, :length]
        assert column.tolist() == getattr(expected, name)[0].tolist(), name
    assert (variants.piece_word[row, length:] == -2).all()


def test_of_a_variant_that_is_too_long_the_last_words_lose_pieces(pieces_swapper):
    variants = replace(pieces_swapper, longest=6).swapped(KEPT, DRAWN)
    lengths = (variants.piece_word != -2).sum(-1)
    assert int(lengths.max()) == 6
    for words, length in zip(variants.piece_word, lengths, strict=True):
        assert words[length - 1] == -1  # what closes the text stays


@pytest.mark.parametrize("words", [2, 3, 9])
def test_sets_have_one_word_to_all_but_one_alike_often(words):
    generator = torch.Generator().manual_seed(1)
    keys = torch.rand(8 * (words - 1), words, generator=generator, dtype=torch.float64)
    chosen = prefixes(keys, generator)
    counts = torch.bincount(chosen.sum(-1), minlength=words + 1).tolist()
    assert counts == [0, *[8] * (words - 1), 0]
    for row, is_chosen in zip(keys, chosen, strict=True):
        assert row[is_chosen].min() > row[~is_chosen].max()


@pytest.mark.parametrize("encoder", ["lstm", "cnn", "transformer"])
def test_the_fast_pass_says_what_the_model_says(encoder):
    """In float32, with each distinct word looked up once: to 1e-6 of a probability."""
    draw = np.random.default_rng(0)
    split = split_of([[*draw.integers(4, 20, 9)] for _ in range(6)])
    model = toy_classifier(encoder, spread=3).double()
    runs = (model, in_float32(model))
    slow, fast = (
        Swapper(run, split[[0]], filler_of(split)).pairs(60, 1.0, torch.Generator().manual_seed(0))
        for run in runs
    )
    assert (slow.with_set - fast.with_set).abs().max() < 1e-6
    assert (slow.without_set - fast.without_set).abs().max() < 1e-6
    assert slow.with_set[:, 0].std() > 1e-3  # the words of the sets do something


@pytest.mark.parametrize("words", [7, 70])
def test_the_effects_are_those_of_least_squares(words):
    """Also with more words than sets, where a smaller system is solved."""
    generator = torch.Generator().manual_seed(0)
    kept = torch.rand(50, words, generator=generator) < 0.5
    sides = 2 * kept.double() - 1
    change = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    padded = np.vstack([sides.numpy(), np.eye(words)])
    zeros = np.zeros((words, 3))
    expected = np.linalg.lstsq(padded, np.vstack([change.numpy(), zeros]), rcond=None)[0]
    assert effects_of_words(sides, change).numpy() == pytest.approx(expected, abs=1e-10)


def test_both_halves_find_what_the_words_of_a_linear_model_do():
    generator = torch.Generator().manual_seed(0)
    kept = torch.rand(4000, 5, generator=generator) < 0.5
    truth = torch.tensor([[0.3, -0.3], [0.1, -0.1], [0.0, 0.0], [-0.2, 0.2], [0.0, 0.0]])
    truth = truth.double()
    with_set = kept.double() @ truth
    without_set = (~kept).double() @ truth
    sets = KeptWords(kept, with_set, without_set)
    for effects in (sets.effects(), sets.effects_in_own_context()):
        assert torch.allclose(effects.first, truth, atol=2e-3)
        assert torch.allclose(effects.second, truth, atol=2e-3)
        assert effects.strongest == 0
        assert effects.strength == pytest.approx(0.09, abs=2e-3)
        assert effects.reliability > 0.99
        # whole from a third of the strongest effect on, whatever its sign; 0 for nothing
        assert effects.shares.tolist() == pytest.approx([1, 1, 0, 1, 0], abs=0.1)


def test_the_square_of_nothing_is_0_on_average():
    """The null: the square of one noisy estimate would be positive."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, 4000, 1, generator=generator, dtype=torch.float64)
    squared = WordEffects(*noise).squared
    assert abs(float(squared.mean())) < 4 * float(squared.std()) / 4000**0.5
    assert float(noise[0].square().mean()) > 0.9


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


def shared(numbers):
    excess, room, strength = (numbers[name].numpy()[None] for name in SHARE_METRICS)
    return share_on_deciding_words(excess, room, strength)


@pytest.fixture(scope="module")
def numbers_by_focus():
    """Where attention lies → what is measured; one word of each text decides."""
    split, votes = words_decide(1, 5.0)
    return {kind: measured(split, Voting(votes, focus)) for kind, focus in FOCUS.items()}


@pytest.mark.parametrize("kind", FOCUS)
def test_the_share_is_the_weight_on_the_word_that_decides_beyond_chance(numbers_by_focus, kind):
    """What is known of this model: (weight − 1/8) / (1 − 1/8)."""
    split, votes = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    attention = Voting(votes, FOCUS[kind])(batch).attention
    weight = float((attention * (batch.ids >= 40)).sum(-1).mean())
    known = (weight - 1 / WORDS) / (1 - 1 / WORDS)
    share = shared(numbers_by_focus[kind])
    assert share.value == pytest.approx(known, abs=0.06)
    assert share.low < known < share.high


def test_right_attention_is_a_yes_and_all_others_a_no(numbers_by_focus):
    ends = {kind: shared(numbers) for kind, numbers in numbers_by_focus.items()}
    assert ends["right"].low > 0.4
    assert max(ends[kind].high for kind in ("first", "avoids", "even")) < 0.4


def test_the_top_word_is_the_strongest(numbers_by_focus):
    assert float(numbers_by_focus["right"]["top_word_effect"].mean()) > 0.95
    assert float(numbers_by_focus["first"]["top_word_effect"].mean()) < 0.3


@pytest.mark.parametrize("kind", FOCUS)
def test_what_words_do_is_the_same_whatever_attention_does(numbers_by_focus, kind):
    numbers = numbers_by_focus[kind]
    of_right = numbers_by_focus["right"]["word_share"]
    assert torch.equal(numbers["word_share"].nan_to_num(), of_right.nan_to_num())
    split, _ = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    is_deciding = batch.ids >= 40
    assert float(numbers["word_share"][is_deciding].mean()) > 0.95
    assert float(numbers["word_share"][batch.content & ~is_deciding].abs().mean()) < 0.1
    assert (numbers["swap_passes"] == 400).all()


def test_redundant_words_are_found_though_none_is_needed():
    """Three words, each of which is enough: leaving one out does nothing."""
    split, votes = words_decide(3, 20.0)
    assert shared(measured(split, Voting(votes, FOCUS["right"]))).low > 0.5


def test_the_temperature_of_the_model_changes_nothing():
    split, votes = words_decide(1, 5.0)
    warm = measured(split, Voting(votes, FOCUS["right"]))
    hot = measured(split, Voting(votes / 50, FOCUS["right"]))
    for name in SHARE_METRICS:
        assert torch.allclose(warm[name], hot[name], atol=1e-4), name


IN_SIGHT = 4
"""Words of a text that a window sees."""


def in_window(batch):
    """The places of a window that looks at the word that decides, and at three others."""
    is_deciding = batch.content & (batch.ids >= 40)
    score = (
        torch.rand(batch.ids.shape, generator=torch.Generator().manual_seed(1)) + 2 * is_deciding
    )
    order = score.masked_fill(~batch.content, -1).argsort(-1, descending=True)
    return torch.zeros_like(batch.content).scatter(1, order[:, :IN_SIGHT], value=True)


@pytest.mark.parametrize("kind", ["right", "even"])
def test_words_that_are_not_seen_are_no_chance(kind):
    """What is known of this model: (weight − 1/4) / (1 − 1/4), of 8 words of which it sees 4."""
    split, votes = words_decide(1, 5.0)
    model = Voting(votes, FOCUS[kind], in_window)
    batch = split[range(TEXTS)]
    weight = float((model(batch).attention * (batch.ids >= 40)).sum(-1).mean())
    known = (weight - 1 / IN_SIGHT) / (1 - 1 / IN_SIGHT)
    numbers = measured(split, model, importances=["attention"])
    share = shared(numbers)
    assert share.value == pytest.approx(known, abs=0.06)
    assert share.low <= known <= share.high
    assert torch.allclose(numbers["swap_excess_attention"], numbers["swap_excess"])
    if kind == "even":  # the null, exactly
        assert float(numbers["swap_excess"].abs().max()) < 1e-12
        assert known == pytest.approx(0)


def test_a_text_of_which_one_word_is_seen_has_no_number():
    split, votes = words_decide(1, 5.0)
    sees_first = Voting(
        votes, FOCUS["even"], lambda batch: batch.content & (batch.content.cumsum(-1) == 1)
    )
    numbers = measured(split, sees_first)
    assert numbers["swap_excess"].isnan().all()


def test_the_own_weights_in_random_order_have_no_share():
    """The null: by symmetry 0, within four standard errors."""
    split, votes = words_decide(1, 5.0)
    noise = torch.rand(TEXTS, WORDS + 2, generator=torch.Generator().manual_seed(3)) ** 6
    excess = measured(split, Voting(votes, lambda batch: noise[batch.example_id]))["swap_excess"]
    assert abs(float(excess.mean())) < 4 * float(excess.std()) / TEXTS**0.5


def test_a_class_that_is_known_by_what_it_lacks_has_no_weight():
    """Class 1 has a marker, class 0 none: attention on the first word of a text is on nothing."""
    split, _ = words_decide(1, 5.0)
    votes = torch.full((64,), 0.0)
    votes[41] = 10.0
    bias = -5.0

    class Absence(Voting):
        def forward(self, batch):
            outputs = super().forward(batch)
            return replace(outputs, logits=outputs.logits + torch.tensor([0.0, bias]))

    numbers = measured(split, Absence(votes, FOCUS["first"]))
    strength = numbers["swap_strength"]
    is_absent = torch.arange(TEXTS) % 2 == 0
    assert float(strength[is_absent].mean()) < 0.1 * float(strength[~is_absent].mean())
    assert shared(numbers).high < 0.4


def test_a_model_that_is_too_noisy_gets_more_passes_and_a_reliable_one_does_not():
    draw = np.random.default_rng(0)
    split = split_of([[*draw.integers(4, 34, 25)] for _ in range(30)])
    many_votes = torch.from_numpy(draw.normal(size=64)).float()
    settings = {"texts": 20, "passes": 100, "most_passes": 400}
    votes = measured(split, Voting(many_votes, FOCUS["even"]), **settings)
    assert (votes["swap_passes"][votes["swap_passes"].isfinite()] > 100).all()


def test_without_any_effect_there_are_no_more_passes():
    split, votes = words_decide(1, 5.0)
    numbers = measured(split, Voting(votes * 0, FOCUS["even"]))
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
    of_chance = numbers["swap_excess_random"]
    assert abs(float(of_chance.mean())) < 4 * float(of_chance.std()) / TEXTS**0.5


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
    probe = Swaps(passes=100, most_passes=100)
    probe.prepare({"test": split})
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
    assert in_one_batch["swap_excess"][:3].isfinite().all()
    assert in_one_batch["swap_excess"][3].isnan()


def test_each_of_two_outcomes_is_moved_as_far_as_both_are():
    """The null: of two classes each one says what both say together."""
    generator = torch.Generator().manual_seed(0)
    half = torch.randn(9, 1, generator=generator, dtype=torch.float64)
    other_half = half + 0.3 * torch.randn(9, 1, generator=generator, dtype=torch.float64)
    effects = WordEffects(torch.cat([half, -half], 1), torch.cat([other_half, -other_half], 1))
    for number in range(2):
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
    assert class_0.shares[1].item() == pytest.approx((0.1 / (0.8 / 3)) ** 2)
    assert class_1.shares.tolist() == pytest.approx([1, 1, 0])
    assert class_2.shares.tolist() == pytest.approx([0, 1, 0])


class VotingForThree(Voting):
    """The same with a vote of each word for each of three classes."""

    classes = 3

    def logits_of(self, batch):
        return torch.where(batch.content.unsqueeze(-1), self.votes[batch.ids], 0).sum(1)


ON = {
    "word of class 0": lambda batch: torch.where(batch.ids == 40, 1.0, 0.001),
    "word of class 2": lambda batch: torch.where(batch.ids == 41, 1.0, 0.001),
}


@pytest.mark.parametrize("kind", ON)
def test_attention_may_be_right_for_one_class_and_wrong_for_another(kind):
    """One word of each text is for class 0 and against 1, another for class 2 and against both."""
    draw = np.random.default_rng(0)
    texts = []
    for _ in range(60):
        text = draw.integers(4, 34, 12)
        places = draw.choice(12, 2, replace=False)
        text[places] = 40, 41
        texts.append([*text])
    split = split_of(texts)
    votes = torch.zeros(64, 3)
    votes[40] = torch.tensor([1.0, -1.0, 0.0])
    votes[41] = torch.tensor([-1.0, -1.0, 2.0])
    numbers = measured(split, VotingForThree(votes, ON[kind]))
    share = {}
    for number in range(3):
        metrics = [f"output_{part}_class_{number}" for part in ("excess", "room", "strength")]
        columns = (numbers[metric].numpy()[None] for metric in metrics)
        share[number] = share_on_deciding_words(*columns).value
    if kind == "word of class 2":  # all three go by it
        assert min(share.values()) > 0.95
        return
    assert share[1] > 0.95
    assert share[2] < 0.3
    assert share[2] < shared(numbers).value - 0.1 < share[1] - 0.2  # of all classes at once


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
        sentences = outputs.attention[:, 1:-1].unflatten(1, (-1, SENTENCE))
        attention = sentences.sum(-1)
        content = torch.ones_like(attention, dtype=torch.bool)
        return Outputs(outputs.logits, attention, attention.log(), attention.unsqueeze(-1), content)


@pytest.fixture(scope="module")
def sentences_by_focus():
    """As `numbers_by_focus`, where words stay or go by sentences."""
    split, votes = words_decide(1, 5.0)
    return {kind: measured(split, VotingInSentences(votes, focus)) for kind, focus in FOCUS.items()}


@pytest.mark.parametrize("kind", FOCUS)
def test_the_share_of_sentences_is_the_weight_on_the_one_that_decides_beyond_chance(
    sentences_by_focus, kind
):
    split, votes = words_decide(1, 5.0)
    batch = split[range(TEXTS)]
    attention = VotingInSentences(votes, FOCUS[kind])(batch).attention
    decides = (batch.ids[:, 1:-1] >= 40).unflatten(1, (-1, SENTENCE)).any(-1)
    weight = float((attention * decides).sum(-1).mean())
    chance = SENTENCE / WORDS
    expected = (weight - chance) / (1 - chance)
    share = shared(sentences_by_focus[kind])
    assert share.value == pytest.approx(expected, abs=0.06)
    assert share.low < expected < share.high
    shares = sentences_by_focus[kind]["word_share"]
    assert shares.shape == decides.shape
    assert float(shares[decides].mean()) > 0.95
    assert float(shares[~decides].abs().mean()) < 0.1


def test_right_attention_over_sentences_is_a_yes_and_even_weights_are_worth_nothing(
    sentences_by_focus,
):
    assert shared(sentences_by_focus["right"]).low > 0.4
    assert shared(sentences_by_focus["avoids"]).high < 0
    assert shared(sentences_by_focus["even"]).value == pytest.approx(0, abs=0.02)


def test_all_words_of_a_sentence_stay_or_none_does():
    split = split_of([[4, 5, 6, 7, 8], [14, 15, 16]])
    position = torch.tensor([[-1, 0, 0, 0, 1, 1, -1]])
    seen = []

    def run(batch):
        seen.append(batch.ids)
        return toy_classifier()(replace(batch, ids=batch.ids.clamp(max=29)))

    filler = filler_of(split_of([[50, 51]]))
    swapper = Swapper(run, split[[0]], filler, position=position)
    pairs = swapper.pairs(12, 1.0, torch.Generator().manual_seed(0))
    assert pairs.kept.shape == (12, 2)
    assert bool((pairs.kept.sum(-1) == 1).all())
    stays = torch.cat(seen)[:, 1:-1] < 50
    expected = torch.cat([pairs.kept, ~pairs.kept])[:, [0, 0, 0, 1, 1]]
    assert torch.equal(stays, expected)
