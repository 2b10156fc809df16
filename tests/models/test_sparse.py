"""Sparse attention: the maps against the definitions, and every test of attention on models that attend so."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from attnprobe.models.attention import AdditiveAttention
from attnprobe.models.sparse import EntmaxAttention, SparsemaxAttention
from attnprobe.results.table import read_results
from attnprobe.running.run import run
from tests.runs import SMALL, SMALL_ADVERSARY, composed

KINDS = {"sparsemax": SparsemaxAttention, "entmax": EntmaxAttention}


def nearest_point(scores):
    """The point of the simplex nearest to the scores: the best of the projections onto every face."""
    best = None
    for size in range(1, len(scores) + 1):
        for face in map(list, itertools.combinations(range(len(scores)), size)):
            point = np.zeros(len(scores))
            point[face] = scores[face] + (1 - scores[face].sum()) / size
            distance = ((point - scores) ** 2).sum()
            if (point >= 0).all() and (best is None or distance < best[0]):
                best = distance, point
    return best[1]


def by_threshold(scores):
    """The 1.5-entmax, its threshold found as a root."""
    half = scores / 2
    root = brentq(lambda tau: (np.maximum(half - tau, 0) ** 2).sum() - 1, half.max() - 1, half.max(), xtol=1e-14)
    return np.maximum(half - root, 0) ** 2


@pytest.mark.parametrize(("kind", "reference"), [("sparsemax", nearest_point), ("entmax", by_threshold)])
@pytest.mark.parametrize("spread", [0.1, 1.0, 30.0])
def test_the_weights_are_those_of_the_definition(kind, reference, spread):
    scores = torch.randn(20, 6, generator=torch.Generator().manual_seed(0)).double() * spread
    content = torch.arange(8) < 6
    wide = torch.nn.functional.pad(scores, (0, 2), value=-torch.inf)
    found = KINDS[kind](4).weights(wide, content.expand(20, -1))
    assert (found[:, 6:] == 0).all()
    np.testing.assert_allclose(found[:, :6].numpy(), [reference(row) for row in scores.numpy()], atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_it_gives_exact_zeros_and_gradients_without_nan(kind):
    attention = KINDS[kind](4)
    scores = torch.tensor([[3.0, 0.0, 2.9, -torch.inf]], requires_grad=True)
    found = attention.weights(scores, torch.tensor([[True, True, True, False]]))
    assert found[0, 1] == 0
    assert found.sum().item() == pytest.approx(1)
    found[0, 0].backward()
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[0, 0] > 0 > scores.grad[0, 2]
    assert AdditiveAttention.positionwise
    assert not KINDS[kind].positionwise


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("model", ["lstm", "cnn", "average", "hanrnn"])
def test_every_test_of_attention_takes_it(kind, model, tmp_path):
    probes = "[permutation,adversarial,single_weight,erasure]"
    probes = probes if model == "hanrnn" else probes[:-1] + ",gradient,leave_one_out,correlation,plausibility]"
    chosen = [f"model/attention={kind}"]
    if model == "hanrnn":
        target = f"{KINDS[kind].__module__}.{KINDS[kind].__name__}"
        chosen = ["data.sentences=rule", f"model.attention._target_={target}"]
    config = composed(
        *SMALL, *SMALL_ADVERSARY, f"model={model}", *chosen, f"probe={probes}", 
        f"output={tmp_path}",
    )  # fmt: skip
    results = read_results(run(config))
    assert set(results["probe"]) >= set(config.probe)
    assert {name.rpartition("_")[2] for name in results["model"]} == {kind} or model == "hanrnn"
    assert results.loc[results["metric"] == "max_attention", "value"].between(0, 1).all()
