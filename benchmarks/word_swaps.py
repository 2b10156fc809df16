"""What the swap test costs beside leave-one-out, and what fewer passes would cost it.

    python -m benchmarks.word_swaps [--encoder FOLDER] [--words 20 200] [--texts 24] [--repeats 3]
    [--threads 1]

Trains an LSTM (with --encoder fine-tunes that checkpoint) on texts of so many common words, of
which one in ten tells the class, and times both probes on the same test texts, in turn, as a run
calls them. A pass is a text that the whole model reads; leave-one-out of an LSTM computes only what
changes. Times are of the processor. Memory is by how much the process grows while a probe works.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from threading import Event, Thread
from time import process_time
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from attnprobe import load_run
from attnprobe.__main__ import CONFIGURATION
from attnprobe.core.batch import Batch
from attnprobe.models.base import Model
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.probes.leave_one_out import LeaveOneOut
from attnprobe.probes.swaps import Swaps
from attnprobe.runs.run import run
from benchmarks.timing import processor

COMMON = sorted(ENGLISH_STOP_WORDS)
TELLING = (("good", "great", "fine"), ("bad", "poor", "awful"))


def texts(words: int, count: int, seed: int) -> list[dict[str, Any]]:
    """Rows of so many words; one in ten is of its label's class."""
    draw = Random(seed)
    rows = []
    for number in range(count):
        label = number % 2
        text = draw.choices(COMMON, k=words)
        for place in draw.sample(range(words), max(1, words // 10)):
            text[place] = draw.choice(TELLING[label])
        rows.append({"text": " ".join(text), "label": ("one", "other")[label]})
    return rows


def finished(folder: Path, words: int, examined: int, encoder: Path | None) -> Path:
    """A run on such texts."""
    for name, count, seed in (("train", 400, 0), ("validation", 40, 1), ("test", examined, 2)):
        folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(row) + "\n" for row in texts(words, count, seed)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    overrides = [
        f"output={folder / 'runs'}",
        "figures=false",
        "data=files",
        f"data.path={folder}",
        "data.text=text",
        "data.label=label",
        "probe=[skill]",
        "training.epochs=3",
    ]
    if encoder is not None:
        overrides += [
            "model=pretrained",
            f"model.path={encoder}",
            "training=finetune",
            "training.epochs=1",
        ]
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        return run(compose("config", overrides=overrides))


def resident() -> float:
    """Memory of this process now, in MB."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096 / 1e6


def watched(job: Any) -> tuple[float, float]:
    """Seconds of processor time of a job, and by how much the process grew meanwhile, in MB."""
    before = resident()
    most = [0.0]
    done = Event()

    def look() -> None:
        while not done.wait(0.02):
            most[0] = max(most[0], resident() - before)

    watcher = Thread(target=look)
    watcher.start()
    start = process_time()
    try:
        job()
        return process_time() - start, most[0]
    finally:
        done.set()
        watcher.join()


def measured(probe: Probe, model: Model, splits: Any, parts: Sequence[Batch]) -> float:
    """Run a probe on these texts; passes a text."""
    read = 0

    def count(module: Model, inputs: tuple[Batch], outputs: object) -> None:
        nonlocal read
        read += len(inputs[0])

    probe.prepare(splits)
    runner = ProbeRunner([probe], 0)
    handle = model.register_forward_hook(count)
    try:
        for batch in parts:
            with torch.no_grad():
                outputs = model.predict_step(batch)
            runner.run(model, batch, outputs)
    finally:
        handle.remove()
    return read / sum(len(batch) for batch in parts)


def costs(words: int, examined: int, encoder: Path | None, repeats: int) -> list[str]:
    """A line per probe."""
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_run(finished(Path(folder), words, examined, encoder))
        data = instantiate(loaded.config["data"], seed=0)
        data.setup("fit")
        if loaded.classifier.reader is not None:
            data.read_pieces(loaded.classifier.reader)
    model = loaded.classifier
    split = data.splits["test"]
    parts = [split[range(start, min(start + 64, len(split)))] for start in range(0, len(split), 64)]
    measurements: dict[str, list[tuple[float, float]]] = {"leave_one_out": [], "swaps": []}
    passes = {}
    for _ in range(repeats):
        for probe in (LeaveOneOut(), Swaps()):

            def job(probe: Probe = probe) -> None:
                passes[probe.name] = measured(probe, model, data.splits, parts)

            measurements[probe.name].append(watched(job))
    title = "MiniLM" if encoder else "LSTM"
    lines = []
    for name, pairs in measurements.items():
        times = sorted(1000 * seconds / len(split) for seconds, _ in pairs)
        memory = max(grown for _, grown in pairs)
        lines.append(
            f"| {title} | {words} | {name} | {passes[name]:.0f} | {median(times):.0f} "
            f"({times[0]:.0f} to {times[-1]:.0f}) | {memory:.0f} |"
        )
    return lines


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--encoder", type=Path, help="folder of a checkpoint")
    parser.add_argument("--words", type=int, nargs="+", default=[20, 200])
    parser.add_argument("--texts", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{processor()}, {options.threads} thread(s), {options.texts} texts, ", end="")
    print(f"medians of {options.repeats}\n")
    print("| model | words | probe | passes | ms a text | MB |\n|---|---|---|---|---|---|")
    for words in options.words:
        print(*costs(words, options.texts, options.encoder, options.repeats), sep="\n", flush=True)


if __name__ == "__main__":
    main()
