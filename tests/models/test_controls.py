import json
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from torch import Tensor
from torch.testing import assert_close

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.data.batching import log_odds_ratios
from attnprobe.importance.gradients import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.models import controls
from attnprobe.models.controls import (
    CommonWordAttention,
    FirstAttention,
    RationaleAttention,
    WordAttention,
    noise,
)
from attnprobe.models.objectives import CoinFlips, CrossEntropy, Deception, Supervision
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.importance.leave_one_out.loops import each_alone
from tests.importance.trained import batch_of, small_data
from tests.small_runs import composed, small_run
from tests.toys import assert_same_alone, toy_batch, toy_classifier

CONTROLS = {
    "rationale": partial(RationaleAttention, mass=0.9),
    "first": FirstAttention,
    "random": controls.RandomAttention,
    "position": controls.PositionAttention,
    "word": WordAttention,
    "common_word": CommonWordAttention,
}
KNOWS_NO_WORD = ("rationale", "first", "random", "position")


def marked(lengths, padding=0):
    """A batch whose second word is the reason, of texts that have one."""
    batch = toy_batch(lengths, padding=padding)
    rationale = torch.zeros_like(batch.content)
    rationale[:, 2] = batch.content[:, 2]
    return replace(batch, rationale=rationale)


@pytest.fixture
def learnt_words():
    """An untrained attention that learns one score of each word, and two texts."""
    batch = toy_batch([4, 2])
    return toy_classifier("lstm", CONTROLS["word"]).train(), batch


def test_word_attention_begins_even(learnt_words):
    classifier, batch = learnt_words
    [weights, _] = classifier(batch).attention
    assert weights[1:5].tolist() == pytest.approx([1 / 4] * 4)


def test_word_attention_is_the_softmax_of_the_words_scores(learnt_words):
    classifier, batch = learnt_words
    word = batch.ids[0, 3]
    assert (batch.ids[0] == word).sum() == 1
    with torch.no_grad():
        classifier.attention.score[word] = np.log(9.0)
    [weights, _] = classifier(batch).attention
    odds = np.array([1, 1, 9, 1])
    assert weights[1:5].tolist() == pytest.approx(odds / 12)


def test_the_scores_of_the_words_of_a_text_are_learnt_and_no_others(learnt_words):
    classifier, batch = learnt_words
    classifier(batch).logits[0, 1].backward()
    gradient = classifier.attention.score.grad
    words = batch.ids[0, 1:5].unique()
    assert (gradient[words] != 0).all()
    assert gradient.count_nonzero() == len(words)


def test_the_commonest_word_is_learnt_in_training_alone():
    batch = toy_batch([4, 3, 5])
    batch.ids[:, 2] = 9  # once in every text
    batch.ids[2, 4] = 9  # twice in the last one
    classifier = toy_classifier("average", CONTROLS["common_word"])
    classifier.eval()(batch)
    assert classifier.attention.seen.sum() == 0

    classifier.train()(batch)
    assert classifier.attention.seen.sum() == 12

    attention = classifier.eval()(batch).attention
    assert attention[:, 2].tolist() == pytest.approx([0.95, 0.95, 0.95])
    last_text = attention[2, 1:6].tolist()
    assert last_text == pytest.approx([0.0125, 0.95, 0.0125, 0.0125, 0.0125])


def guessable_rows():
    """Texts of which every fourth is of class 1."""
    for row in range(400):
        is_fourth = row % 4 == 0
        yield {"text": f"word{row % 7} word{row % 3}", "label": int(is_fourth)}


def test_a_guesser_learns_the_classes_shares_and_nothing_else(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, guessable_rows())))
    config = composed(
        "data=files",
        f"data.path={path}",
        "probe=[permutation]",
        "figures=false",
        "model=average",
        "model/decoder=constant",
        "training.epochs=20",
        "training.recipe.optimizer.lr=0.02",
        f"output={tmp_path}",
    )
    results = read_results(run(config))
    means = results.groupby("metric")["value"].mean()
    assert means["median_tvd"] == 0
    assert means["predicted_class"] == 0
    assert means["accuracy"] == 0.75


def test_a_guesser_has_a_gradient_of_0_by_the_text():
    attended = torch.randn(5, 4, 3, requires_grad=True)
    logits = controls.ConstantDecoder(3, 2)(attended)
    (gradient,) = torch.autograd.grad(logits.exp().sum(), attended)
    assert not gradient.any()


def flipped(classifier, batch):
    """The loss of random labels."""
    losses = CoinFlips()(classifier(batch), batch, classifier.task, None)
    return losses["loss"]


@pytest.fixture(scope="module")
def coins():
    """A classifier, 300 texts and the loss of their coins."""
    batch = toy_batch([3] * 300)
    classifier = toy_classifier("average")
    return classifier, batch, flipped(classifier, batch)


def test_coin_flips_never_read_the_label(coins):
    classifier, batch, loss = coins
    opposite = replace(batch, labels=1 - batch.labels)
    assert_close(flipped(classifier, opposite), loss)


def test_a_coin_falls_as_before_wherever_its_text_stands(coins):
    classifier, batch, loss = coins
    backwards = torch.arange(299, -1, -1)
    assert_close(flipped(classifier, batch.rows(backwards)), loss[backwards])


def test_a_coin_falls_on_either_side_as_often(coins):
    classifier, batch, loss = coins
    loss_of_heads = -classifier(batch).logits.log_softmax(-1)[:, 1]
    is_heads = torch.isclose(loss, loss_of_heads)
    assert 0.4 < is_heads.float().mean() < 0.6


def test_an_untrained_model_is_a_run_with_its_first_weights(tmp_path):
    def weights(name, *settings):
        directory = run(small_run(tmp_path / name, *settings, probes="[]"))
        return load_file(directory / "model.safetensors")

    untrained = weights("untrained", "training=untrained")
    longer = weights("longer", "training=untrained", "training.epochs=3")
    trained = weights("trained")
    is_trained = False
    for key, value in untrained.items():
        assert torch.equal(longer[key], value)
        is_trained |= not torch.equal(trained[key], value)
    assert is_trained


def imposed(name, batch, encoder="average"):
    """The attention of a control, which nothing has trained."""
    return toy_classifier(encoder, CONTROLS[name])(batch).attention


def test_rationale_attention_by_hand():
    """The second text marks no reason: its attention is even."""
    attention = imposed("rationale", marked([4, 1], padding=2))
    rest = 0.1 / 3
    expected = torch.tensor(
        [
            [0, rest, 0.9, rest, rest, 0, 0, 0],
            [0, 1, 0, 0, 0, 0, 0, 0],
        ]
    )
    assert_close(attention, expected)


def test_a_rationale_that_is_the_whole_text_has_all_the_mass():
    batch = marked([4, 1], padding=2)
    batch.rationale = batch.content.clone()
    attention = imposed("rationale", batch)
    assert attention[0, 1:5].tolist() == pytest.approx([1 / 4] * 4)


def test_first_attention_by_hand():
    attention = imposed("first", toy_batch([3, 1]), "lstm")
    expected = torch.tensor(
        [
            [0.95, 0.025, 0.025],
            [1.0, 0.0, 0.0],
        ]
    )
    assert_close(attention[:, 1:4], expected)


def distinct_words(encoder, name):
    """A classifier whose control has a score of its own for each of the words, if it has scores."""
    classifier = toy_classifier(encoder, CONTROLS[name])
    for scores in classifier.attention.state_dict().values():  # all start equal
        scores.copy_(torch.arange(len(scores)))
    return classifier


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_neither_padding_nor_the_batch_changes_it(name, encoder):
    batch = marked([6, 3, 5], padding=3)
    classifier = distinct_words(encoder, name)
    attention = classifier(batch).attention
    assert torch.equal(attention > 0, batch.content)
    assert_close(attention.sum(-1), torch.ones(3))
    assert_same_alone(classifier, batch)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_it_knows_no_word_if_it_says_so(name, encoder):
    batch = marked([6, 3, 5], padding=3)
    classifier = distinct_words(encoder, name)
    words_of_other_text = batch.ids.roll(1, 0).clamp(min=4)
    ids = torch.where(batch.content, words_of_other_text, batch.ids)
    attention = classifier(batch).attention
    changed = classifier(replace(batch, ids=ids)).attention
    assert torch.allclose(changed, attention) == (name in KNOWS_NO_WORD)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_leave_one_out_follows_its_definition(name, encoder):
    batch = marked([5, 3])
    classifier = toy_classifier(encoder, CONTROLS[name]).double()
    outputs = classifier(batch)
    result = leave_one_out(classifier, batch, outputs)
    distance = getattr(result, "removals", result).distance
    expected = each_alone(classifier, batch, outputs)
    assert_close(distance, expected, atol=1e-9, rtol=0, equal_nan=True)


@pytest.mark.parametrize("name", [name for name in CONTROLS if name != "position"])
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_no_gradient_flows_through_what_is_given(name, encoder):
    classifier = toy_classifier(encoder, CONTROLS[name]).double()
    gradient = gradients(classifier, marked([5, 3]))
    assert_close(gradient.embedding, gradient.embedding_through_attention)


def test_noise_is_normal():
    seeds = torch.arange(200).unsqueeze(-1)
    numbers = noise(seeds, torch.arange(100))
    assert stats.kstest(numbers.flatten(), "norm").pvalue > 0.01


def splitmix64(state):
    """One step of Steele, Lea & Flood's generator (2014), in Python's whole numbers."""
    mask = (1 << 64) - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def test_noise_is_splitmix64_in_whole_numbers():
    state = splitmix64(splitmix64(3) + 7)
    uniform = ((state >> 11) + 0.5) / (1 << 53)
    expected = stats.norm.ppf(uniform)
    number = noise(torch.tensor(3), torch.tensor(7))
    assert number.item() == pytest.approx(expected, abs=1e-12)


@dataclass(frozen=True)
class Trained:
    """Marked texts under a classifier, and their cross entropy, to which an objective adds."""

    batch: Batch
    outputs: Outputs
    cross_entropy: Tensor

    def losses(self, objective):
        return objective(self.outputs, self.batch, Task.SINGLE_LABEL, None)


def trained(rationale=None):
    """Texts whose second word is marked, or others on request."""
    batch = marked([4, 3])
    if rationale is not None:
        batch.rationale = torch.tensor(rationale)
    outputs = toy_classifier("lstm")(batch)
    losses = CrossEntropy()(outputs, batch, Task.SINGLE_LABEL, None)
    return Trained(batch, outputs, losses["loss"])


def test_deception_by_hand():
    texts = trained()
    mass = texts.outputs.attention[:, 2]
    losses = texts.losses(Deception(weight=0.5))
    assert_close(losses["loss"], texts.cross_entropy - 0.5 * torch.log(1 - mass))
    assert_close(losses["mass"], mass.detach())


def test_supervision_by_hand():
    """The divergence of the attention from equal weights on what is marked."""
    texts = trained(
        rationale=[
            [False, False, True, True, False, False],
            [False, False, True, False, False, False],
        ]
    )
    first, second = texts.outputs.attention
    first_marked = first[2:4]
    second_marked = second[2:3]
    divergence = torch.stack(
        [
            (0.5 * torch.log(0.5 / first_marked)).sum(),
            torch.log(1 / second_marked).sum(),
        ]
    )
    mass = torch.stack([first_marked.sum(), second_marked.sum()])

    losses = texts.losses(Supervision(weight=0.5))

    assert_close(losses["loss"], texts.cross_entropy + 0.5 * divergence)
    assert_close(losses["mass"], mass.detach())


def test_supervision_of_a_text_without_marks_is_cross_entropy():
    texts = trained(rationale=[[False] * 6] * 2)
    losses = texts.losses(Supervision())
    assert_close(losses["loss"], texts.cross_entropy)


def test_a_lexicons_attention_is_the_softmax_of_log_odds():
    data = small_data()
    batch = batch_of(data)
    odds = log_odds_ratios(data.splits["train"], len(data.vocabulary), len(data.classes))
    strength_of_word = torch.from_numpy(abs(odds).mean(-1))
    strength = strength_of_word[batch.ids]
    scores = (2 * strength).masked_fill(~batch.content, -torch.inf)

    lexicon = controls.LexiconAttention(4, scale=2.0)
    lexicon.read_training_texts(data)

    attention = lexicon.given(batch).double()
    assert_close(attention, scores.softmax(-1), rtol=1e-5, atol=1e-7)


def test_a_lexicons_attention_of_scale_0_is_uniform():
    batch = batch_of(small_data())
    attention = controls.LexiconAttention(4, scale=0.0).given(batch)
    assert_close(attention, batch.content / batch.content.sum(-1, keepdim=True))


def test_a_column_of_the_data_is_imposed_as_it_is():
    """Where a text has no weights its attention is even, as that of equal weights is."""
    batch = toy_batch([3, 2, 2])
    nan = torch.nan
    batch.extra["mine"] = torch.tensor(
        [
            [nan, 0.0, 3.0, 1.0, nan],
            [nan, 0.5, 0.5, nan, nan],
            [nan, nan, nan, nan, nan],
        ]
    )
    expected = torch.tensor(
        [
            [0.0, 0.0, 0.75, 0.25, 0.0],
            [0.0, 0.5, 0.5, 0.0, 0.0],
            [0.0, 0.5, 0.5, 0.0, 0.0],
        ]
    )
    attention = controls.ColumnAttention(6, column="mine").given(batch)
    assert_close(attention, expected)


def test_a_column_that_the_data_do_not_have_is_refused():
    batch = toy_batch([3])
    batch.extra["mine"] = torch.zeros(batch.ids.shape)
    message = r"column=other: expected a column of data\.per_word.*there are mine"
    with pytest.raises(UserError, match=message):
        controls.ColumnAttention(6, column="other").given(batch)


def test_texts_that_mark_no_rationale_are_refused():
    with pytest.raises(UserError, match="these texts do not say which"):
        RationaleAttention(4).given(toy_batch([3]))
