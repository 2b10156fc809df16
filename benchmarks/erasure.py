"""Erasure against the published loop, which erases one item per call.

    python -m benchmarks.erasure

2,000 documents of 20 to 400 positions, states of 100 features, 2 and 10 classes: the effect of
every single erasure, six rankings and five random orders followed until the decision flips, and the
smallest flipping set. Both sides run in one process on one thread on the same float64 tensors. The
loop runs on a random sample of the documents; its time is scaled by the number of calls that all
documents need, which is known once ours is done. The rankings' scores are given to it, and it has
no smallest flipping set: that would mean trying all sets. Both are repeated, and the faster time of
each counts.
"""

from dataclasses import dataclass
from time import process_time

import numpy as np
import torch
from torch import Tensor

from attnprobe.core.readout import Readout
from attnprobe.exact import smallest_flipping_set
from attnprobe.exact.erasure import decision_margin, erase_each, erase_in_order
from attnprobe.models.decoders import LinearDecoder
from benchmarks import reference

DOCUMENTS = 2000
SHORTEST = 20
LONGEST = 400
HIDDEN = 100
BATCH = 64
ORDERS = 5
SAMPLE = 30
REPETITIONS = 3


def documents(classes: int) -> tuple[LinearDecoder, list[tuple[Tensor, Tensor, Tensor]]]:
    """A decoder, and batches of (states, attention, content).

    Sorted by length, as an evaluation loop has them.
    """
    torch.manual_seed(0)
    decoder = LinearDecoder(HIDDEN, classes).double().requires_grad_(False)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (DOCUMENTS,)).sort().values
    batches = []
    for part in lengths.split(BATCH):
        content = torch.arange(int(part.max())) < part.unsqueeze(-1)
        topic = torch.randn(len(part), 1, HIDDEN, dtype=torch.float64)
        hidden = (torch.randn(*content.shape, HIDDEN, dtype=torch.float64) + 0.3 * topic).tanh()
        scores = 2 * torch.randn(content.shape, dtype=torch.float64)
        attention = scores.masked_fill(~content, -torch.inf).softmax(-1)
        batches.append((hidden, attention, content))
    return decoder, batches


def rankings(readout: Readout, hidden: Tensor, decoder: LinearDecoder) -> Tensor:
    """The probe's rankings, random ones last."""
    attention = readout.attention
    p = readout.prediction()
    chosen = p.argmax(-1)
    assert readout.position_logits is not None
    effect = readout.position_logits - decoder(torch.zeros_like(hidden[:1, :1]))
    index = chosen[:, None, None].expand(*effect.shape[:2], 1)
    chosen_effect = effect.gather(-1, index).squeeze(-1)
    mean_effect = torch.einsum("bc,bsc->bs", p, effect)
    gradient = p.gather(-1, chosen.unsqueeze(-1)) * (chosen_effect - mean_effect)
    noise = torch.rand(ORDERS, *attention.shape, dtype=torch.float64)
    norm = hidden.norm(dim=-1)
    ranked = [
        attention,
        -attention,
        gradient,
        gradient * attention,
        attention * norm,
        attention * decision_margin(readout),
    ]
    return torch.stack([*ranked, *noise])


def ours(
    decoder: LinearDecoder, hidden: Tensor, attention: Tensor, content: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Everything about one batch.

    Returns:
        The single erasures' divergences, the rankings' scores and their counts.
    """
    readout = Readout(
        attention, content, torch.arange(len(attention)), position_logits=decoder(hidden)
    )
    scores = rankings(readout, hidden, decoder)
    single = erase_each(readout)
    counts = erase_in_order(readout, scores).count
    smallest_flipping_set(attention, readout.position_logits, content)
    return single.divergence, scores, counts


def published(
    decoder: LinearDecoder, hidden: Tensor, attention: Tensor, content: Tensor, scores: Tensor
) -> tuple[Tensor, list[int]]:
    """The same about one document, but for the optimum."""
    divergences, _ = reference.erase_singly(decoder, hidden, attention, content)
    orders = scores.argsort(dim=-1, descending=True).tolist()
    return divergences, [
        reference.erase_until_flip(decoder, hidden, attention, order) for order in orders
    ]


def compare(classes: int) -> str:
    """One line.

    Seconds of both, their ratio, how much of the loop was run, and whether the results agree.
    """
    decoder, batches = documents(classes)
    seconds = []
    for _ in range(REPETITIONS):
        torch.manual_seed(1)
        start = process_time()
        results = [ours(decoder, *batch) for batch in batches]
        seconds.append(process_time() - start)
    calls = 0
    for (_, _, content), (_, _, counts) in zip(batches, results, strict=True):
        calls += needed(counts, content)

    loop = run_loop(decoder, batches, results)
    scaled = loop.seconds * calls / loop.calls
    return (
        f"{classes:7} {min(seconds):8.2f} s {scaled:10.1f} s {scaled / min(seconds):8.0f} x   "
        f"{loop.seconds:.1f} s for {loop.calls:,} of {calls:,} calls; "
        f"differ: {loop.difference:.0e} nats, {loop.differing} of {loop.counts} counts"
    )


@dataclass(frozen=True)
class Loop:
    """The published loop on a sample of the documents.

    Attributes:
        seconds: of the fastest repetition.
        calls: that it made.
        difference: the largest of two divergences, in nats.
        counts: of erasures until the decision flips.
        differing: how many of these are not ours.
    """

    seconds: float
    calls: int
    difference: float
    counts: int
    differing: int


def run_loop(
    decoder: LinearDecoder,
    batches: list[tuple[Tensor, Tensor, Tensor]],
    results: list[tuple[Tensor, Tensor, Tensor]],
) -> Loop:
    """Time the published loop, and compare it with our results."""
    seconds = [0.0] * REPETITIONS
    calls = 0
    difference = 0.0
    differing = 0
    for number in np.random.default_rng(0).choice(DOCUMENTS, SAMPLE, replace=False):
        batch, row = divmod(int(number), BATCH)
        length = int(batches[batch][2][row].sum())
        document = [values[row][:length] for values in batches[batch]]
        single, scores, counts = results[batch]
        for repetition in range(REPETITIONS):
            start = process_time()
            divergences, flips = published(decoder, *document, scores[:, row, :length])
            seconds[repetition] += process_time() - start
        calls += needed(counts[:, [row]], document[2].unsqueeze(0))
        difference = max(difference, float((single[row, :length] - divergences).abs().max()))
        differing += int((torch.tensor(flips) != counts[:, row]).sum())
    return Loop(min(seconds), calls, difference, SAMPLE * len(counts), differing)


def needed(counts: Tensor, content: Tensor) -> int:
    """Erasures that the loop makes.

    Each item alone, and every order until it flips or one item is left.
    """
    length = content.sum(-1)
    return int(length.sum() + torch.where(counts > 0, counts, length - 1).sum())


def main() -> None:
    """Print the comparison for few and for many classes."""
    torch.set_num_threads(1)
    print(f"{'classes':>7} {'ours':>10} {'published':>12} {'ratio':>10}   measured")
    for classes in (2, 10):
        print(compare(classes), flush=True)


if __name__ == "__main__":
    main()
