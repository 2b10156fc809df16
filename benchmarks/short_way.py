"""The short way past the last attention, per attention, against whole passes of the network and
against a user's own loop.

python -m benchmarks.short_way FOLDER [--pieces 128] [--samples 16]

The loop (`by_hand`) is what anybody would write: it reads the attention with
`output_attentions=True`, puts other weights into the last layer's row of [CLS], and runs the
network again, with all samples of one text in a batch. It is given these weights; the short way has
to find them."""

import argparse
from collections.abc import Sequence
from copy import deepcopy
from math import inf
from time import perf_counter
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import TextRules
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.models.base import membership
from attnprobe.models.pretrained.model import PretrainedClassifier
from attnprobe.models.pretrained.site import Lifting

REPEATS = 3
"""Of each way, in turn; the shortest time counts, which other work on the machine moves least."""


def by_hand(
    network: Any,
    ids: Sequence[Int[Tensor, "pieces"]],
    rows: Float[Tensor, "samples texts heads pieces"],
) -> Float[Tensor, "samples texts classes"]:
    """Logits of a BERT under other weights of the last layer's first row, written with
    `transformers` alone.

    Args:
        network: as `transformers` opens it, with attn_implementation="eager".
        ids: the pieces of each text, without padding.
        rows: the other weights of each text.
    """
    attention = network.base_model.encoder.layer[-1].attention.self
    own = attention.forward
    results = []
    for text, other in zip(ids, rows.transpose(0, 1), strict=True):
        weights = network(input_ids=text[None], output_attentions=True).attentions[-1]
        weights = weights.repeat(len(other), 1, 1, 1)
        weights[:, :, 0] = other

        def replaced(
            hidden: Tensor, *given: object, weights: Tensor = weights, **named: object
        ) -> tuple[Tensor, Tensor]:
            values = attention.value(hidden).unflatten(-1, (weights.shape[1], -1)).transpose(1, 2)
            return (weights @ values).transpose(1, 2).flatten(2), weights

        attention.forward = replaced
        results.append(network(input_ids=text.expand(len(other), -1)).logits)
        attention.forward = own
    return torch.stack(results, 1)


def texts_of(model: PretrainedClassifier) -> tuple[Batch, Batch]:
    """A batch with padding, for the check at the start, and four long texts without any."""
    pipeline = TextPipeline(
        TextRules(tokenizer="whitespace", token_rules=()),
        Vocabulary(["film"]),
        ["a", "b"],
        pieces=model.reader,
    )
    texts = [
        " ".join(f"film {number} of people" for number in range(start, start + 60))
        for start in range(4)
    ]
    return pipeline.batch_of([*texts[:3], "short"]), pipeline.batch_of(texts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the times and the largest differences of two logits."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--pieces", type=int, default=128)
    parser.add_argument(
        "--samples", type=int, default=16, help="whole passes; 16 times as many by the short way"
    )
    given = parser.parse_args(arguments)
    torch.manual_seed(0)
    model = PretrainedClassifier(
        name="x",
        path=given.folder,
        class_names=["a", "b"],
        trains=True,
        max_pieces=given.pieces,
        offline=True,
    ).eval()
    check, batch = texts_of(model)
    model.prepare(check)
    print(model.facts)
    compare(model, batch, given.samples)


def compare(model: PretrainedClassifier, batch: Batch, samples: int) -> None:
    """Time the three, on the same attentions of the same texts."""
    model.to(model.precision)
    network = deepcopy(model.network)
    network.set_attn_implementation("eager")
    assert batch.pieces is not None
    pieces = batch.pieces
    with torch.no_grad():
        outputs = model(batch)
        short = model.readout(batch, outputs)
        noise = torch.rand(16 * samples, *outputs.attention.shape).double() * batch.content
        attentions = noise / noise.sum(-1, keepdim=True)
        some = attentions[:samples]
        ways = {
            "whole": (model.readout(batch, outputs, short=False).logits, some),
            "short": (short.logits, attentions),
            "by hand": (
                lambda rows: by_hand(network, list(pieces), rows),
                rows_of(model, batch, some),
            ),
        }
        results = {}
        seconds = dict.fromkeys(ways, inf)
        for _ in range(
            1 + REPEATS
        ):  # in turn, so that each meets the same other work; the first pays for what is set up
            for name, (way, given) in ways.items():
                start = perf_counter()
                results[name] = way(given)[:samples]
                seconds[name] = min(
                    seconds[name], (perf_counter() - start) / len(given) / len(batch)
                )
    print(
        f"{pieces.shape[1]} pieces; standard deviation of the logits {float(results['whole'].std(0).max()):.1e}"
    )
    for name, took in seconds.items():
        apart = float((results[name] - results["short"]).abs().max())
        print(
            f"{name}: {1e3 * took:.3f} ms per attention, {took / seconds['short']:.0f} times the short way; largest "
            f"|Δlogit| from it {apart:.1e}"
        )


def rows_of(
    model: PretrainedClassifier, batch: Batch, attentions: Tensor
) -> Float[Tensor, "samples texts heads pieces"]:
    """The rows of the last layer that show these attentions per word."""
    own = model.recorded(batch).weights
    assert batch.piece_word is not None
    chosen = model.selection(batch)
    member = membership(batch)
    return Lifting(chosen.of(own), member, chosen.valid)(attentions).to(own.dtype)


if __name__ == "__main__":
    main()
