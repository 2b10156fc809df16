import pytest
import torch
from captum.attr import IntegratedGradients as Direct

from attnprobe.core.errors import UserError
from attnprobe.importance.attribution import AT_ONCE, texts_at_once
from attnprobe.importance.gradients import IntegratedGradients
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_on_an_additive_model_it_is_what_each_word_adds():
    subject = additive_subject()
    torch.testing.assert_close(subject.scores("integrated_gradients"), words_shares(subject))


@pytest.mark.parametrize(("target", "first", "second"), [("class 2", 2, None), ("contrast", None, "runner-up")])
def test_the_target_is_a_setting(target, first, second):
    one = IntegratedGradients(target=target)
    subject = additive_subject(importances={"integrated_gradients": one})
    expected = words_shares(subject, first=first, second=second)
    torch.testing.assert_close(subject.scores("integrated_gradients"), expected)


def test_an_unknown_class_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"target=clas 1: there is no such class; did you mean class 1\?"):
        IntegratedGradients(target="clas 1").named_class(["class 0", "class 1"])


def test_it_is_captums_direct_call():
    subject = contextual_subject(importances={"integrated_gradients": IntegratedGradients(most_steps=32)})
    model, batch, predicted = subject.classifier, subject.batch, subject.outputs.logits.argmax(-1)
    for row in range(len(batch)):
        alone = batch.rows(slice(row, row + 1))

        def direct(vectors, alone=alone):
            return model.outputs_from(alone.rows(torch.zeros(len(vectors), dtype=torch.long)), vectors).logits

        inputs = model.inputs(alone).detach()
        baseline = inputs.masked_fill(alone.content.unsqueeze(-1), 0)
        found = Direct(direct).attribute(inputs, baseline, target=predicted[row : row + 1], n_steps=32).sum(-1)
        torch.testing.assert_close(subject.scores("integrated_gradients")[row], found[0])


def test_the_scores_add_up_to_within_the_gap_or_all_steps_were_taken():
    def gap(**settings):
        one = IntegratedGradients(**settings)
        subject = contextual_subject(importances={"integrated_gradients": one})
        (note,) = one.notes(subject)
        found = (subject.scores("integrated_gradients").sum(-1) - one.total(subject)).abs().max()
        assert note.value == float(found)
        return float(found)

    rough = gap(steps=1, most_steps=1)
    assert rough > 1e-3
    assert gap(steps=1, most_steps=256) <= 1e-3
    assert 1e-3 < gap(steps=1, most_steps=2, gap=1e-12) != rough


@pytest.mark.parametrize("steps", [0, 512])
def test_steps_in_the_wrong_range(steps):
    with pytest.raises(UserError, match=rf"integrated_gradients.steps={steps}: expected"):
        IntegratedGradients(steps=steps)


def test_the_mean_of_the_text_is_another_baseline():
    one = IntegratedGradients(baseline="mean")
    subject = additive_subject(importances={"integrated_gradients": one})
    content = subject.batch.content
    shares = words_shares(subject)
    centred = shares - shares.sum(-1, keepdim=True) / content.sum(-1, keepdim=True)
    torch.testing.assert_close(subject.scores("integrated_gradients"), centred.masked_fill(~content, 0))
    with pytest.raises(UserError, match="baseline=median: expected zeros or mean"):
        IntegratedGradients(baseline="median")


def test_a_large_network_reads_fewer_texts_at_a_time_whatever_its_vocabulary():
    small = torch.nn.ModuleList([torch.nn.Embedding(30_000, 100), torch.nn.Linear(100, 100)])
    large = torch.nn.ModuleList([*small, torch.nn.Linear(2_000, 4_000, bias=False)])
    assert texts_at_once(small, 32) == AT_ONCE // 32
    assert texts_at_once(large, 32) == AT_ONCE // 4 // 32 - 1  # 8,010,100 parameters: a little less than a quarter
    assert texts_at_once(large, 10**9) == 1
