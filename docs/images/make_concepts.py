"""The pictures of docs/concepts.md, from one run on the built-in corpus:

python -m attnprobe model=cnn model/attention=dot 'probe=[]'
python docs/images/make_concepts.py runs/testbed/cnn_dot-seed0-…
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import attnprobe
from attnprobe.core.randomness import Draws
from attnprobe.exact import farthest_attention, smallest_flipping_set
from attnprobe.exact.erasure import erase_in_order
from attnprobe.exact.nulls import permute_attention
from attnprobe.measures import jensen_shannon, total_variation
from attnprobe.plots.style import FAINT, FOUND, INK, OPTIMUM, paper_style

HERE = Path(__file__).parent
TEXT = (
    "the pacing is mildly dumb while the opening seemed graceful ."  # number 549 of the test split
)
EPSILON = 0.01
PERMUTATIONS = 300


def main(directory):
    """Draw all three."""
    run = attnprobe.load_run(directory)
    run.classifier.double()
    batch, outputs = run.outputs([TEXT])
    readout = run.classifier.readout(batch, outputs)
    words = run.pipeline.tokens(TEXT)
    with paper_style():
        for name, figure in {
            "attention": attention(readout, words),
            "erasure": erasure(readout, words),
            "plane": plane(readout),
        }.items():
            figure.savefig(HERE / f"concepts_{name}.png", dpi=150)


def content(readout, values):
    """The values of the content positions."""
    return values[0][readout.content[0]].numpy()


def attention(readout, words):
    """The attention, the farthest one with the same prediction, and the position logits."""
    farthest = farthest_attention(
        readout.attention, readout.position_logits, readout.content, epsilon=EPSILON
    )
    figure, axes = plt.subplots(3, 1, figsize=(5.6, 3.5), sharex=True, layout="constrained")
    for axis, weights, colour, title in (
        (axes[0], readout.attention, FOUND, "attention"),
        (
            axes[1],
            farthest.attention,
            OPTIMUM,
            f"farthest attention, JSD {farthest.jsd.item():.2f} of at most 0.69 nats",
        ),
    ):
        positive = readout.predict(weights)[0, 1].item()
        axis.bar(range(len(words)), content(readout, weights), 0.7, color=colour)
        axis.set_title(f"{title}: positive with p = {positive:.3f}", loc="left")
        axis.set_ylim(0, 1)
        axis.set_ylabel("weight")
    margin = content(readout, readout.position_logits[..., 1] - readout.position_logits[..., 0])
    axes[2].bar(
        range(len(words)), margin, 0.7, color=[FAINT if value > 0 else INK for value in margin]
    )
    axes[2].axhline(0, color=INK, lw=0.6)
    axes[2].set_title(
        "position logits: what each word would say alone (above 0: positive)", loc="left"
    )
    axes[2].set_ylabel("logit")
    axes[2].set_xticks(range(len(words)), words, rotation=35, ha="right")
    return figure


def erasure(readout, words):
    """The decision's probability while words are erased, in three orders."""
    own = readout.prediction().argmax(-1).item()
    smallest = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    margin = readout.position_logits[..., own] - readout.position_logits[..., 1 - own]
    noise = Draws(1, "concepts").uniform(1, readout.content, torch.tensor([0]))[0]
    figure, axis = plt.subplots(figsize=(5.6, 2.4), layout="constrained")
    for name, order, colour, style in (
        ("one random order", noise, FAINT, ":"),
        ("attention's order", readout.attention, FOUND, "-"),
        ("the optimal order", readout.attention * margin, OPTIMUM, "-"),
    ):
        ranked = order[0].masked_fill(~readout.content[0], -torch.inf).argsort(descending=True)
        kept, curve = readout.attention.clone(), [readout.prediction()[0, own].item()]
        for position in ranked[: len(words) - 1]:
            kept[0, position] = 0
            curve.append(readout.predict(kept / kept.sum())[0, own].item())
        flips = int(erase_in_order(readout, order[None]).count[0, 0])
        label = f"{name}: {flips} of {len(words)}" if flips > 0 else f"{name}: no flip"
        axis.plot(curve, style, color=colour, lw=1.4, label=label)
        if flips > 0:
            axis.plot(flips, curve[flips], "o", ms=5, color=colour)
            if colour == OPTIMUM:
                assert flips == smallest.size.item()
    axis.axhline(0.5, color=INK, lw=0.6, ls=(0, (2, 2)))
    axis.set_xlabel("words erased")
    axis.set_ylabel("probability of the decision")
    axis.set_ylim(0, 1.02)
    axis.set_xlim(0, len(words) - 1)
    figure.legend(title="words until the flip", loc="outside upper left", ncols=3, alignment="left")
    return figure


def plane(readout):
    """How far predictions and attentions move: permutations, and the most that is possible."""
    steps = np.linspace(0, 1, 201)
    jsd = [
        farthest_attention(
            readout.attention, readout.position_logits, readout.content, epsilon=step
        ).jsd.item()
        for step in steps
    ]
    noise = Draws(0, "concepts").uniform(PERMUTATIONS, readout.content, torch.tensor([0]))
    permuted = permute_attention(readout.attention, readout.content, noise)
    moved = total_variation(readout.predict(permuted), readout.prediction())
    away = jensen_shannon(permuted, readout.attention.expand_as(permuted), readout.content)
    figure, axis = plt.subplots(figsize=(5.6, 2.7), layout="constrained")
    axis.plot(
        moved,
        away,
        ".",
        ms=4,
        color=FAINT,
        mew=0,
        label=f"{PERMUTATIONS} permutations of the attention",
    )
    axis.plot(steps, jsd, color=OPTIMUM, lw=1.4, label="farthest attention within this TVD (exact)")
    axis.fill_between(steps, jsd, 0.75, color=OPTIMUM, alpha=0.08, lw=0)
    axis.axvline(EPSILON, color=INK, lw=0.6, ls=(0, (2, 2)))
    axis.annotate(f"ε = {EPSILON}", (EPSILON, 0.03), xytext=(3, 0), textcoords="offset points")
    axis.axhline(np.log(2), color=INK, lw=0.6)
    axis.annotate("ln 2", (1, np.log(2)), xytext=(-2, 2), textcoords="offset points", ha="right")
    axis.plot(
        0, 0, "o", ms=5, color=FOUND, clip_on=False, label="the model's own attention", ls="none"
    )
    axis.set_xlabel("TVD: how far the prediction moves")
    axis.set_ylabel("JSD: how far the attention moves")
    axis.set_xlim(0, 1)
    axis.set_ylim(0, 0.75)
    axis.legend(loc="lower right")
    return figure


if __name__ == "__main__":
    main(sys.argv[1])
