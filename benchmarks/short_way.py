"""The short way past the last attention against whole passes and against a user's own loop.

    python -m benchmarks.short_way FOLDER [--pieces 128] [--samples 16]

The loop (`by_hand`) is what anybody would write: it reads the attention with
`output_attentions=True`, puts other weights into the last layer's row of [CLS], and runs the
network again, with all samples of one text in a batch. It is given these weights; the short way has
to find them.
"""

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
    """Logits of a BERT under other weights of the last layer's first row.

    Written with `transformers` alone.

    Args:
        network: as `transformers` opens it, with attn_implementation="eager".
        ids: the pieces of each text, without padding.
        rows: the other weights of each text.
    """
    attention = network.base_model.encoder.layer[-1].attention.self
    original = attention.forward
    results = []
    for text, text_rows in zip(ids, rows.transpose(0, 1), strict=True):
        weights = network(input_ids=text[None], output_attentions=True).attentions[-1]
        weights = weights.repeat(len(text_rows), 1, 1, 1)
        weights[:, :, 0] = text_rows

        def replaced(
            hidden: Tensor, *_: object, weights: Tensor = weights, **__: object
        ) -> tuple[Tensor, Tensor]:
            values = attention.value(hidden).unflatten(-1, (weights.shape[1], -1)).transpose(1, 2)
            return (weights @ values).transpose(1, 2).flatten(2), weights

        attention.forward = replaced
        results.append(network(input_ids=text.expand(len(text_rows), -1)).logits)
        attention.forward = original
    return torch.stack(results, 1)


def texts_of(model: PretrainedClassifier) -> tuple[Batch, Batch]:
    """A batch with padding, for the check at the start, and four long texts without any."""
    pipeline = TextPipeline(
        TextRules(tokenizer="whitespace", token_rules=()),
        Vocabulary(["film"]),
        ["a", "b"],
        pieces=model.reader,
    )
    phrases = [f"film {number} of people" for number in range(63)]
    texts = [" ".join(phrases[start : start + 60]) for start in range(4)]
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
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    model = PretrainedClassifier(
        name="x",
        path=options.folder,
        class_names=["a", "b"],
        trains=True,
        max_pieces=options.pieces,
        offline=True,
    ).eval()
    check, batch = texts_of(model)
    model.prepare(check)
    print(model.facts)
    compare(model, batch, options.samples)


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
        first = attentions[:samples]
        rows = rows_of(model, batch, first)
        ways = {
            "whole": (model.readout(batch, outputs, short=False).logits, first),
            "short": (short.logits, attentions),
            "by hand": (lambda rows: by_hand(network, list(pieces), rows), rows),
        }
        results = {}
        seconds = dict.fromkeys(ways, inf)
        # in turn, so that each meets the same other work; the first pays for what is set up
        for _ in range(1 + REPEATS):
            for name, (way, weights) in ways.items():
                start = perf_counter()
                results[name] = way(weights)[:samples]
                duration = (perf_counter() - start) / len(weights) / len(batch)
                seconds[name] = min(seconds[name], duration)

    spread = float(results["whole"].std(0).max())
    print(f"{pieces.shape[1]} pieces; standard deviation of the logits {spread:.1e}")
    for name, duration in seconds.items():
        difference = float((results[name] - results["short"]).abs().max())
        print(
            f"{name}: {1e3 * duration:.3f} ms per attention, "
            f"{duration / seconds['short']:.0f} times the short way; largest |Δlogit| from it "
            f"{difference:.1e}"
        )


def rows_of(
    model: PretrainedClassifier, batch: Batch, attentions: Tensor
) -> Float[Tensor, "samples texts heads pieces"]:
    """The rows of the last layer that show these attentions per word."""
    record = model.recorded(batch)
    chosen = model.selection(batch)
    rows = chosen.of(record.weights)
    lifting = Lifting(rows, membership(batch), chosen.valid, chosen.seen(record.visible))
    return lifting(attentions).to(rows.dtype)


if __name__ == "__main__":
    main()
