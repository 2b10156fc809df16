"""How far an attention can be for three or more classes, or several labels: the best one found, and a bound above all.

The feasible set {a : TVD(softmax(Σ a_t z_t), p) ≤ ε} is not a polytope here, so the optimum has no closed form. One linear
programme bounds it, its solution points at good attentions, and branching brings the two together.

*Outer polytope.* Write x_c = ln q_c = y_c − s for the new prediction q, with y = Σ a_t z_t linear in a and s the
logarithm of the normaliser, a variable of its own. TVD ≤ ε implies |q_c − p_c| ≤ ε for every class, which is linear in
(a, s): ln(p_c−ε) ≤ y_c − s ≤ ln(p_c+ε). (Eliminating s gives the bounds on all pairwise log-odds.) Further, on this box
q_c = exp(x_c) lies above its tangents (at p_c and at some points up to p_c + ε) and below its chord; put into Σ q_c = 1 and
into Σ max(0, ±(q_c − p_c)) ≤ ε, both are linear again, and every feasible attention satisfies them.

*Upper bound.* JSD = Σ f(α_t, a_t) is a sum of convex terms. On l_t ≤ a_t ≤ u_t the chord of each lies above it;
maximise the chords' sum over the outer polytope. Evaluated from the programme's multipliers by weak duality, so that no
tolerance of the solver can make it wrong. Splitting one [l_t, u_t] where chord and term differ most, and taking the
larger of the two halves' bounds, closes the gap (branch and bound, the loosest part first).

*Lower bound.* Single positions, pairs that reach the rim, and every programme's solution, moved towards the model's own
prediction within its few positions until its true TVD is at most ε; the best of them then climbs to the true rim.

Several labels have another outer polytope (`attnprobe.exact.labels`); all else is the same.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.special import log_softmax
from torch import Tensor

from attnprobe.exact.bound import NEGLIGIBLE, branch_and_bound
from attnprobe.exact.candidates import pairs, polish
from attnprobe.exact.classes import ClassRegion
from attnprobe.exact.labels import LabelRegion
from attnprobe.exact.region import Incumbent, Region, moved_term


def certified_interval(
    attention: Float[Tensor, "batch seq"],
    position_logits: Float[Tensor, "batch seq classes"],
    content: Bool[Tensor, "batch seq"],
    epsilon: float,
    effort: int,
    *,
    exclusive: bool = True,
) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch"]]:
    """The farthest attention found within ε, and an upper bound (nats) on the JSD of all that are.

    Args:
        attention: sums to 1 exactly; float64, as `attnprobe.exact.arguments.checked` gives it.
        position_logits: float64.
        content: where attention may be moved.
        epsilon: 0 or more; infinite where everything is allowed.
        effort: how many linear programmes the bound of an example may take (about 0.3 ms each at 6 classes and 30
            positions). 0 takes none and leaves the unconstrained maximum as the bound.
        exclusive: one class per text; else any of the labels.
    """
    arrays = (tensor.cpu().numpy() for tensor in (attention, position_logits, content))
    farthest, bounds = attention.clone(), []
    for row, (weights, logits, keep) in enumerate(zip(*arrays, strict=True)):
        alpha, kept = weights[keep], logits[keep]
        mass = float(alpha.sum())
        matters = keep | (weights > 0)  # sums over padding would round differently in another batch
        own = weights[matters] @ logits[matters]
        shift = kept - (alpha @ kept / mass if mass > 0 else kept.mean(0))
        example = (
            ClassRegion(alpha, shift, mass, epsilon, log_softmax(own))
            if exclusive
            else LabelRegion(alpha, shift, mass, epsilon, own)
        )
        best, bound = _interval(example, effort)
        farthest[row, content[row]] = torch.from_numpy(best).to(farthest)
        bounds.append(bound)
    return farthest, attention.new_tensor(bounds)


def _interval(example: Region, effort: int) -> tuple[Float[np.ndarray, "seq"], float]:
    """Best attention found and upper bound for one text."""
    mass = np.array(example.mass)
    value = example.mass * np.log(2) / 2 + moved_term(example.alpha, mass)  # with everything on one position
    free = float(value.max())  # the optimum without any constraint
    best = Incumbent(example)
    farthest = int(np.where(example.well_within(mass * example.shift), value, -np.inf).argmax())
    best.offer_all(np.eye(1, len(value), farthest) * mass)
    if best.jsd >= free - NEGLIGIBLE:
        return best.attention, free
    best.offer_all(pairs(example, best.jsd))
    if not effort:
        return best.attention, free
    bound = min(free, branch_and_bound(example, best, effort))
    if bound > best.jsd + NEGLIGIBLE:
        polish(example, best)
    return best.attention, bound
