"""How long importances of a checkpoint take, beside loops that a user would write.

With `transformers` alone, in one process.

    python -m benchmarks.plain_loop RUN --texts 24 --repeats 3 --threads 1

RUN is a run or an audit's member with a checkpoint as it is; the texts are its own test texts.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from attnprobe.results.table import read_examples
from attnprobe.runs.load import load_run
from benchmarks.timing import Compared, interleaved

AT_ONCE = 32
STEPS = 64


def without_each_word(network: Any, read: Any, texts: list[str]) -> list[Tensor]:
    """Total variation distance of the prediction without each word.

    In batches of 32 as the texts come.
    """
    changed = []
    for text in texts:
        words = text.split()
        for removed in range(len(words)):
            changed.append(" ".join(words[:removed] + words[removed + 1 :]))

    def predict(inputs: list[str]) -> Tensor:
        predictions = []
        for start in range(0, len(inputs), AT_ONCE):
            part = read(inputs[start : start + AT_ONCE], padding=True, return_tensors="pt")
            predictions.append(network(**part).logits.softmax(-1))
        return torch.cat(predictions)

    with torch.no_grad():
        originals = predict(texts)
        shortened = predict(changed).split([len(text.split()) for text in texts])
    return [
        (predictions - original).abs().sum(-1) / 2
        for original, predictions in zip(originals, shortened, strict=True)
    ]


def gradients(network: Any, read: Any, texts: list[str], steps: int) -> list[Tensor]:
    """Gradient × input of the predicted logit for each piece.

    With more than one step integrated from 0, by midpoints.
    """
    scores = []
    for text in texts:
        inputs = read(text, return_tensors="pt")
        vectors = network.get_input_embeddings()(inputs["input_ids"]).detach()
        target = int(network(**inputs).logits.argmax())
        points = (torch.arange(steps) + 0.5) / steps if steps > 1 else torch.ones(1)
        total = torch.zeros_like(vectors)
        for shares in points.split(AT_ONCE):
            scaled = (vectors * shares[:, None, None]).requires_grad_()
            mask = inputs["attention_mask"].expand(len(shares), -1)
            network(inputs_embeds=scaled, attention_mask=mask).logits[:, target].sum().backward()
            total += scaled.grad.sum(0, keepdim=True) / steps
        scores.append((total * vectors).sum(-1)[0])
    return scores


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = load_run(options.run)
    folder = OmegaConf.load(options.run / "config.yaml")["model"]["path"]
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    read = AutoTokenizer.from_pretrained(folder)
    texts = [" ".join(words) for words in read_examples(options.run)["tokens"][: options.texts]]
    loops: dict[str, Callable[[], Any]] = {
        "leave_one_out": partial(without_each_word, network, read, texts),
        "gradient_input": partial(gradients, network, read, texts, 1),
        "integrated_gradients": partial(gradients, network, read, texts, STEPS),
    }
    print(
        "| importance | plain loop | attnprobe, prediction and attention included | "
        "ratio (range) |\n|---|---|---|---|"
    )
    for name, loop in loops.items():
        print(
            line(name, loop, partial(run.explain, texts, importance=[name]), options.repeats),
            flush=True,
        )

    scores = run.explain(texts, importance=["leave_one_out"])["leave_one_out"]
    difference = max(
        float((torch.tensor(values) - loop_values).abs().max())
        for values, loop_values in zip(scores, without_each_word(network, read, texts), strict=True)
    )
    words = sum(len(text.split()) for text in texts)
    print(f"largest difference of leave-one-out: {difference:.1e}; {words} words")


def line(name: str, loop: Callable[[], Any], ours: Callable[[], Any], repeats: int) -> str:
    """Time the loop and ours, in turn."""
    seconds = interleaved({"published": loop, "ours": ours}, repeats)
    row = Compared(name, seconds["published"], seconds["ours"])
    ratios = row.ratios
    return (
        f"| {name} | {median(row.published):.2f} s | {median(row.ours):.2f} s | "
        f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) |"
    )


if __name__ == "__main__":
    main()
