"""How long importances of a checkpoint take, beside loops that a user would write with
`transformers` alone, in one process.

    python -m benchmarks.plain_loop RUN --texts 24 --repeats 3 --threads 1

RUN is a run or an audit's member with a checkpoint as it is; the texts are its own test texts.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from attnprobe.results.table import read_examples
from attnprobe.runs.load import load_run

AT_ONCE = 32
STEPS = 64


def without_each_word(network: Any, read: Any, texts: list[str]) -> list[Tensor]:
    """Total variation distance of the prediction without each word, in batches of 32 as the texts
    come."""
    changed = [
        " ".join(w for place, w in enumerate(text.split()) if place != out)
        for text in texts
        for out in range(len(text.split()))
    ]
    with torch.no_grad():

        def ask(some: list[str]) -> Tensor:
            parts = (
                read(some[at : at + AT_ONCE], padding=True, return_tensors="pt")
                for at in range(0, len(some), AT_ONCE)
            )
            return torch.cat([network(**part).logits.softmax(-1) for part in parts])

        whole = ask(texts)
        other = ask(changed).split([len(text.split()) for text in texts])
    return [(mine - one).abs().sum(-1) / 2 for one, mine in zip(whole, other, strict=True)]


def gradients(network: Any, read: Any, texts: list[str], steps: int) -> list[Tensor]:
    """Gradient × input of the predicted logit for each piece; with more than one step integrated
    from 0, by midpoints."""
    found = []
    for text in texts:
        given = read(text, return_tensors="pt")
        vectors = network.get_input_embeddings()(given["input_ids"]).detach()
        target = int(network(**given).logits.argmax())
        along = (torch.arange(steps) + 0.5) / steps if steps > 1 else torch.ones(1)
        total = torch.zeros_like(vectors)
        for part in along.split(AT_ONCE):
            at = (vectors * part[:, None, None]).requires_grad_()
            mask = given["attention_mask"].expand(len(part), -1)
            network(inputs_embeds=at, attention_mask=mask).logits[:, target].sum().backward()
            total += at.grad.sum(0, keepdim=True) / steps
        found.append((total * vectors).sum(-1)[0])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    ours = load_run(asked.run)
    folder = OmegaConf.load(asked.run / "config.yaml")["model"]["path"]
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    read = AutoTokenizer.from_pretrained(folder)
    texts = [" ".join(words) for words in read_examples(asked.run)["tokens"][: asked.texts]]
    loops: dict[str, Callable[[], Any]] = {
        "leave_one_out": partial(without_each_word, network, read, texts),
        "gradient_input": partial(gradients, network, read, texts, 1),
        "integrated_gradients": partial(gradients, network, read, texts, STEPS),
    }

    def seconds(call: Callable[[], Any]) -> float:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    print(
        "| importance | plain loop | attnprobe, prediction and attention included | ratio (range) |\n|---|---|---|---|"
    )
    for name, loop in loops.items():
        plain = []
        mine = []
        for _ in range(asked.repeats):
            plain.append(seconds(loop))
            mine.append(seconds(partial(ours.explain, texts, importance=[name])))
        ratios = [theirs / own for theirs, own in zip(plain, mine, strict=True)]
        print(
            f"| {name} | {statistics.median(plain):.2f} s | {statistics.median(mine):.2f} s | "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |",
            flush=True,
        )
    ones = ours.explain(texts, importance=["leave_one_out"])["leave_one_out"]
    theirs = without_each_word(network, read, texts)
    apart = max(float((torch.tensor(a) - b).abs().max()) for a, b in zip(ones, theirs, strict=True))
    print(
        f"largest difference of leave-one-out: {apart:.1e}; {sum(len(one.split()) for one in texts)} words"
    )


if __name__ == "__main__":
    main()
