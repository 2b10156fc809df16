import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats
from torch.testing import assert_close

from attnprobe.core.batch import Task
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


def test_word_attention_by_hand_and_its_scores_are_learnt():
    batch = toy_batch([4, 2])
    classifier = toy_classifier("lstm", CONTROLS["word"]).train()
    assert_close(classifier(batch).attention[0, 1:5], torch.full((4,), 0.25))
    with torch.no_grad():
        classifier.attention.score[batch.ids[0, 3]] = np.log(9.0)
    outputs = classifier(batch)
    assert (batch.ids[0] == batch.ids[0, 3]).sum() == 1
    assert_close(outputs.attention[0, 1:5], torch.tensor([1, 1, 9, 1]) / 12)
    outputs.logits[0, 1].backward()
    gradient = classifier.attention.score.grad
    assert (gradient[batch.ids[0, 1:5]] != 0).all()
    assert gradient.count_nonzero() == len(set(batch.ids[0, 1:5].tolist()))


def test_the_commonest_word_is_learnt_in_training_alone():
    batch = toy_batch([4, 3, 5])
    classifier = toy_classifier("average", CONTROLS["common_word"])
    batch.ids[:, 2] = 9  # once in every text
    batch.ids[2, 4] = 9  # twice in the last one
    classifier.eval()(batch)
    assert classifier.attention.seen.sum() == 0
    classifier.train()(batch)
    assert classifier.attention.seen.sum() == 12
    attention = classifier.eval()(batch).attention
    assert_close(attention[:, 2], torch.full((3,), 0.95))
    assert_close(attention[2, 1:6], torch.tensor([0.0125, 0.95, 0.0125, 0.0125, 0.0125]))


def test_a_guesser_learns_the_classes_shares_and_nothing_else(tmp_path):
    lines = []
    for row in range(400):
        lines.append(
            json.dumps({"text": f"word{row % 7} word{row % 3}", "label": int(row % 4 == 0)})
        )
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines))
    config = composed(
        "data=files",
        f"data.path={path}",
        "probe=[permutation]",
        "figures=false",
        "model/decoder=constant",
        "training.epochs=20",
        "training.recipe.optimizer.lr=0.02",
        f"output={tmp_path}",
    )
    means = read_results(run(config)).groupby("metric")["value"].mean()
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
    return CoinFlips()(classifier(batch), batch, classifier.task, None)["loss"]


def test_coin_flips_never_read_the_label_and_are_the_same_every_time():
    batch = toy_batch([3] * 300)
    classifier = toy_classifier("average")
    loss = flipped(classifier, batch)
    assert_close(flipped(classifier, replace(batch, labels=1 - batch.labels)), loss)
    backwards = torch.arange(299, -1, -1)
    assert_close(flipped(classifier, batch.rows(backwards)), loss[backwards])


def test_a_coin_falls_on_either_side_as_often():
    batch = toy_batch([3] * 300)
    classifier = toy_classifier("average")
    heads = -classifier(batch).logits.log_softmax(-1)[:, 1]
    assert 0.4 < torch.isclose(flipped(classifier, batch), heads).float().mean() < 0.6


def test_an_untrained_model_is_a_run_with_its_first_weights(tmp_path):
    def weights(name, *settings):
        directory = run(small_run(tmp_path / name, *settings, probes="[]"))
        return load_file(directory / "model.safetensors")

    untrained = weights("untrained", "training=untrained")
    longer = weights("longer", "training=untrained", "training.epochs=3")
    trained = weights("trained")
    assert all(torch.equal(value, longer[key]) for key, value in untrained.items())
    assert any(not torch.equal(value, trained[key]) for key, value in untrained.items())


def test_rationale_attention_by_hand():
    batch = marked([4, 1], padding=2)
    attention = toy_classifier("average", CONTROLS["rationale"])(batch).attention
    expected = torch.zeros_like(attention)
    expected[0, 1:5] = torch.tensor([0.1 / 3, 0.9, 0.1 / 3, 0.1 / 3])
    expected[1, 1] = 1  # no reason is marked: even
    assert_close(attention, expected)


def test_a_rationale_that_is_the_whole_text_has_all_the_mass():
    batch = marked([4, 1], padding=2)
    batch = replace(batch, rationale=batch.content.clone())
    attention = toy_classifier("average", CONTROLS["rationale"])(batch).attention
    assert_close(attention[0, 1:5], torch.full((4,), 0.25))


def test_first_attention_by_hand():
    attention = toy_classifier("lstm", CONTROLS["first"])(toy_batch([3, 1])).attention
    expected = torch.tensor([[0.95, 0.025, 0.025], [1.0, 0.0, 0.0]])
    assert_close(attention[:, 1:4], expected)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_neither_padding_nor_the_batch_changes_it_and_it_knows_no_word_if_it_says_so(name, encoder):
    batch = marked([6, 3, 5], padding=3)
    classifier = toy_classifier(encoder, CONTROLS[name])
    for parameter in classifier.attention.state_dict().values():  # all start equal
        parameter.copy_(torch.arange(len(parameter)))
    attention = classifier(batch).attention
    assert torch.equal(attention > 0, batch.content)
    assert_close(attention.sum(-1), torch.ones(3))
    assert_same_alone(classifier, batch)
    ids = torch.where(batch.content, batch.ids.roll(1, 0).clamp(min=4), batch.ids)
    changed = classifier(replace(batch, ids=ids)).attention
    assert torch.allclose(changed, attention) == (name in KNOWS_NO_WORD)


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("encoder", ["lstm", "cnn"])
def test_leave_one_out_and_gradients_follow_their_definition(name, encoder):
    batch = marked([5, 3])
    classifier = toy_classifier(encoder, CONTROLS[name]).double()
    outputs = classifier(batch)
    result = leave_one_out(classifier, batch, outputs)
    distance = getattr(result, "removals", result).distance
    expected = each_alone(classifier, batch, outputs)
    assert_close(distance, expected, atol=1e-9, rtol=0, equal_nan=True)
    gradient = gradients(classifier, batch)
    if name != "position":  # nothing flows through what is given
        assert_close(gradient.embedding, gradient.embedding_through_attention)


def test_noise_is_normal():
    numbers = noise(torch.arange(200).unsqueeze(-1), torch.arange(100)).flatten().numpy()
    assert stats.kstest(numbers, "norm").pvalue > 0.01


def test_noise_is_splitmix64_in_whole_numbers():
    mask = (1 << 64) - 1
    state = 0
    for number in (3, 7):
        state = (state + number + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    expected = stats.norm.ppf(((state >> 11) + 0.5) / (1 << 53))
    assert float(noise(torch.tensor(3), torch.tensor(7))) == pytest.approx(expected, abs=1e-12)


def test_deception_by_hand():
    batch = marked([4, 3])
    outputs = toy_classifier("lstm")(batch)
    entropy = CrossEntropy()(outputs, batch, Task.SINGLE_LABEL, None)["loss"]
    mass = outputs.attention[:, 2]
    losses = Deception(weight=0.5)(outputs, batch, Task.SINGLE_LABEL, None)
    assert_close(losses["loss"], entropy - 0.5 * torch.log(1 - mass))
    assert_close(losses["mass"], mass.detach())


def test_supervision_by_hand():
    batch = marked([4, 3])
    batch.rationale[0, 3] = True
    outputs = toy_classifier("lstm")(batch)
    entropy = CrossEntropy()(outputs, batch, Task.SINGLE_LABEL, None)["loss"]
    losses = Supervision(weight=0.5)(outputs, batch, Task.SINGLE_LABEL, None)
    first, second = outputs.attention.tolist()
    expected = [
        0.5 * math.log(0.5 / first[2]) + 0.5 * math.log(0.5 / first[3]),
        -math.log(second[2]),
    ]
    assert_close(losses["loss"], entropy + 0.5 * torch.tensor(expected))
    mass = (outputs.attention * batch.rationale).sum(-1).detach()
    assert_close(losses["mass"], mass)


def test_supervision_of_a_text_without_marks_is_cross_entropy():
    batch = marked([4, 3])
    batch = replace(batch, rationale=torch.zeros_like(batch.rationale))
    outputs = toy_classifier("lstm")(batch)
    entropy = CrossEntropy()(outputs, batch, Task.SINGLE_LABEL, None)["loss"]
    loss = Supervision()(outputs, batch, Task.SINGLE_LABEL, None)["loss"]
    assert_close(loss, entropy)


def test_a_lexicons_attention_is_the_softmax_of_log_odds():
    data = small_data()
    attention = controls.LexiconAttention(4, scale=2.0)
    batch = batch_of(data)
    attention.read_training_texts(data)
    odds = log_odds_ratios(data.splits["train"], len(data.vocabulary), len(data.classes))
    strength = torch.from_numpy(abs(odds).mean(-1))[batch.ids]
    expected = (2 * strength).masked_fill(~batch.content, -torch.inf).softmax(-1)
    assert_close(attention.given(batch).double(), expected, rtol=1e-5, atol=1e-7)


def test_a_lexicons_attention_of_scale_0_is_uniform():
    batch = batch_of(small_data())
    attention = controls.LexiconAttention(4, scale=0.0).given(batch)
    assert_close(attention, batch.content / batch.content.sum(-1, keepdim=True))


def test_a_column_of_the_data_is_imposed_as_it_is():
    batch = toy_batch([3, 2, 2])
    batch.extra["mine"] = torch.full(batch.ids.shape, torch.nan)
    batch.extra["mine"][0, 1:4] = torch.tensor([0.0, 3.0, 1.0])
    batch.extra["mine"][1, 1:3] = torch.tensor([0.5, 0.5])
    attention = controls.ColumnAttention(6, column="mine").given(batch)
    assert_close(attention[0, 1:4], torch.tensor([0.0, 0.75, 0.25]))
    even = torch.full((2, 2), 0.5)  # where a text has no weights, too
    assert_close(attention[1:, 1:3], even)
    assert (attention[~batch.content] == 0).all()


def test_a_column_that_the_data_do_not_have_is_refused():
    batch = toy_batch([3])
    batch.extra["mine"] = torch.zeros(batch.ids.shape)
    message = r"column=other: expected a column of data\.per_word.*there are mine"
    with pytest.raises(UserError, match=message):
        controls.ColumnAttention(6, column="other").given(batch)


def test_texts_that_mark_no_rationale_are_refused():
    with pytest.raises(UserError, match="these texts do not say which"):
        RationaleAttention(4).given(toy_batch([3]))
