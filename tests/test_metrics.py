"""The measures as torchmetrics' own harness checks a metric.

Its `MetricTester` is in torchmetrics' repository and not in its wheel, so that what it checks is
written here: accumulation, processes, pickling, reset, devices, constants, and gradients.
"""

import math
import pickle
from functools import partial

import pytest
import scipy
import torch
from torch import distributed
from torch.multiprocessing.spawn import spawn
from torch.testing import assert_close
from torchmetrics import MetricCollection

from attnprobe.core.errors import UserError
from attnprobe.metrics import JensenShannon, KendallTau, TotalVariation

BATCHES = 6
ROWS = 5
LENGTH = 7
METRICS = (JensenShannon, TotalVariation, KendallTau)


def batches():
    """Batches of two attentions and their masks; one row of all holds a single entry."""
    generator = torch.Generator().manual_seed(0)

    def attention_over(mask):
        noise = torch.rand(ROWS, LENGTH, generator=generator, dtype=torch.float64)
        mass = (8 * noise).round() + 0.5
        mass = mass.masked_fill(~mask, 0)
        return mass / mass.sum(1, keepdim=True)

    batches = []
    for number in range(BATCHES):
        mask = torch.rand(ROWS, LENGTH, generator=generator) < 0.8
        mask[:, :3] = True
        if number == 2:
            mask[4] = torch.arange(LENGTH) == 1
        first = attention_over(mask)
        second = attention_over(mask)
        # what stands at padding never matters
        first[~mask] = 1.0
        second[~mask] = 3.0
        batches.append((first, second, mask))
    return batches


def expected(metric, p, q, mask):
    """Each row's number by scipy, entry by entry."""
    values = []
    for row_p, row_q, row_mask in zip(p, q, mask, strict=True):
        a = row_p[row_mask].numpy()
        b = row_q[row_mask].numpy()
        if metric is JensenShannon:
            value = scipy.spatial.distance.jensenshannon(a, b) ** 2
        elif metric is TotalVariation:
            value = abs(a - b).sum() / 2
        elif len(a) > 1:
            value = scipy.stats.kendalltau(a, b).statistic
        else:
            value = math.nan
        values.append(value)
    return torch.tensor(values, dtype=torch.float64)


def all_expected(metric):
    return torch.cat([expected(metric, *batch) for batch in batches()])


@pytest.mark.parametrize("metric", METRICS)
def test_batches_add_up_to_all_at_once(metric):
    mean = metric()
    each = metric(reduction="none")
    for p, q, mask in batches():
        batch_values = expected(metric, p, q, mask)
        assert_close(mean(p, q, mask=mask), batch_values.nanmean())
        assert_close(each(p, q, mask=mask), batch_values, equal_nan=True)
    all_values = all_expected(metric)
    assert_close(mean.compute(), all_values.nanmean())
    assert_close(each.compute(), all_values, equal_nan=True)
    assert mean.undefined == all_values.isnan().sum()
    assert mean.compute() is mean.compute()  # computed once


@pytest.mark.parametrize("metric", METRICS)
def test_a_reset_metric_is_as_new(metric):
    for reduction in ("mean", "none"):
        used = metric(reduction=reduction)
        used.update(*batches()[0][:2])
        used.reset()
        assert used.update_count == 0
        p, q, mask = batches()[3]
        used.update(p, q, mask)
        new = metric(reduction=reduction)
        new.update(p, q, mask)
        assert torch.equal(used.compute(), new.compute())


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_is_pickled_cloned_saved_and_hashed(metric):
    original = metric()
    first_batch, second_batch, *_ = batches()
    original.update(*first_batch)
    pickled = pickle.dumps(original)
    copies = [pickle.loads(pickled), original.clone()]
    for copy in copies:
        assert torch.equal(copy.compute(), original.compute())
        copy.update(*second_batch)
        assert not torch.equal(copy.compute(), original.compute())
    assert hash(metric()) != hash(metric())

    original.persistent(True)
    restored = metric()
    restored.load_state_dict(original.state_dict())
    restored.persistent(True)
    assert restored.state_dict()["rows"] == ROWS


@pytest.mark.parametrize("metric", METRICS)
def test_states_move_with_the_metric_and_keep_their_type(metric):
    for reduction in ("mean", "none"):
        moved = metric(reduction=reduction)
        p, q, mask = batches()[0]
        moved.update(p, q, mask)
        before = moved.compute()
        half = moved.clone().half()
        assert half.compute().dtype is before.dtype  # as torchmetrics has it: set_dtype alone
        there = moved.clone().to("meta")
        states = [
            there.undefined,
            *([there.total, there.rows] if reduction == "mean" else there.values),
        ]
        assert {state.device.type for state in states} == {"meta"}


@pytest.mark.parametrize("metric", METRICS)
def test_what_a_metric_declares_cannot_be_changed(metric):
    for name in ("is_differentiable", "higher_is_better"):
        with pytest.raises(RuntimeError, match=name):
            setattr(metric(), name, not getattr(metric, name))


@pytest.mark.parametrize("metric", METRICS)
def test_gradients_flow_where_a_metric_says_so(metric):
    p, q, mask = batches()[0]
    p.requires_grad_()
    value = metric()(p, q, mask)
    assert value.requires_grad == metric.is_differentiable
    if metric.is_differentiable:
        value.backward()
        assert p.grad.isfinite().all()
        assert p.grad[~mask].eq(0).all()


def test_several_metrics_share_a_collection():
    collection = MetricCollection([metric() for metric in METRICS])
    for p, q, mask in batches():
        collection.update(p, q, mask=mask)
    assert set(collection.compute()) == {"JensenShannon", "TotalVariation", "KendallTau"}
    for metric in METRICS:
        value = collection.compute()[metric.__name__]
        assert_close(value, all_expected(metric).nanmean())


def test_no_defined_row_has_no_mean():
    tau = KendallTau()
    tau.update(torch.ones(2, 3), torch.rand(2, 3))
    assert tau.compute().isnan()
    assert int(tau.undefined) == 2


def test_an_unknown_reduction_is_refused():
    with pytest.raises(UserError, match=r"reduction='max'.*'mean' or 'none'"):
        JensenShannon(reduction="max")


def in_process(rank, place, processes):
    """Every second batch is this process's; both know the number of all."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=processes
    )
    for metric in METRICS:
        mean = metric()
        each = metric(reduction="none")
        step_mean = metric(dist_sync_on_step=True)
        all_values = all_expected(metric)
        by_batch = all_values.reshape(BATCHES, ROWS)
        by_step = by_batch.split(processes)
        batches_of_process = batches()[rank::processes]
        for batch, step_values in zip(batches_of_process, by_step, strict=True):
            mean.update(*batch)
            each.update(*batch)
            assert_close(step_mean(*batch), step_values.nanmean())
        assert_close(mean.compute(), all_values.nanmean())
        process_by_process = torch.cat([by_batch[0::processes], by_batch[1::processes]])
        assert_close(each.compute(), process_by_process.flatten(), equal_nan=True)
        assert mean.rows < BATCHES * ROWS  # after the sum, its own rows again
    distributed.destroy_process_group()


@pytest.mark.whole
def test_two_processes_have_the_number_of_all_batches(tmp_path):
    spawn(partial(in_process), args=(str(tmp_path / "meeting"), 2), nprocs=2)
