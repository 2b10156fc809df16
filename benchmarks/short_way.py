"""The short way past the last attention against whole passes of the network, per attention.

python -m benchmarks.short_way FOLDER [--pieces 128] [--samples 16]
"""

import argparse
from time import perf_counter

import torch

from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.text import TextRules
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.models.pretrained.model import PretrainedClassifier


def main() -> None:
    """Print both times and the largest difference of two logits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--pieces", type=int, default=128)
    parser.add_argument("--samples", type=int, default=16, help="whole passes; 16 times as many by the short way")
    given = parser.parse_args()
    torch.manual_seed(0)
    model = PretrainedClassifier(
        name="x", path=given.folder, class_names=["a", "b"], trains=True, max_pieces=given.pieces, offline=True
    ).eval()
    pipeline = TextPipeline(
        TextRules(tokenizer="whitespace", token_rules=()), Vocabulary(["film"]), ["a", "b"], pieces=model.reader
    )
    texts = [" ".join(f"film {number} of people" for number in range(start, start + 60)) for start in range(4)]
    batch = pipeline.batch_of([*texts[:3], "short"])
    model.prepare(batch)
    print(model.facts)
    batch = pipeline.batch_of(texts)
    with torch.no_grad():
        outputs = model(batch)
        ways = {"whole": model.readout(batch, outputs, short=False), "short": model.readout(batch, outputs)}
        noise = torch.rand(16 * given.samples, *outputs.attention.shape).double() * batch.content
        attentions = noise / noise.sum(-1, keepdim=True)
        results, seconds = {}, {}
        for name, readout in ways.items():
            some = attentions if name == "short" else attentions[: given.samples]
            readout.logits(some[:1])
            start = perf_counter()
            results[name] = readout.logits(some)[: given.samples]
            seconds[name] = (perf_counter() - start) / len(some) / len(batch)
    spread = float(results["whole"].std(0).max())
    apart = float((results["short"] - results["whole"]).abs().max())
    print(
        f"{batch.pieces.shape[1]} pieces: whole pass {1e3 * seconds['whole']:.2f} ms per attention, short way "
        f"{1e3 * seconds['short']:.3f} ms, ratio {seconds['whole'] / seconds['short']:.0f}; largest |Δlogit| "
        f"{apart:.1e}, standard deviation of the logits {spread:.1e}"
    )


if __name__ == "__main__":
    main()
