"""Time and memory of long texts that are asked for many labels."""

import resource
from collections.abc import Sequence
from functools import partial
from multiprocessing import get_context
from time import process_time

import numpy as np
import pandas as pd
import torch

from attnprobe.core.batch import Batch
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.data.examples import Ragged
from attnprobe.importance.base import Subject
from attnprobe.models.attention import LabelAttention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import LabelDecoder
from attnprobe.models.encoders import CNNEncoder, LabelVector
from attnprobe.probes.base import Probe
from attnprobe.probes.erasure import Erasure
from attnprobe.probes.labels import Labels

VOCABULARY = 5000
MEGABYTE = 1024
"""Kilobytes, in which the operating system counts."""


def split_of(words: int, labels: int) -> TextSplit:
    """One text of random words, asked for so many labels."""
    text = np.random.default_rng(0).integers(4, VOCABULARY, words)
    return TextSplit(
        example_id=np.arange(labels),
        words=Ragged.of([text] * labels, np.int32),
        vocabulary_id=np.arange(VOCABULARY),
        columns={
            "labels": np.zeros(labels, np.int64),
            "question": Ragged.of([np.array([4 + label]) for label in range(labels)], np.int32),
            "text_number": np.zeros(labels, np.int64),
        },
    )


def classifier() -> AttentionClassifier:
    """CAML, untrained."""
    torch.manual_seed(0)
    embeddings = torch.randn(VOCABULARY, 100)
    embeddings[0] = 0
    return AttentionClassifier(
        embeddings=embeddings,
        encoder=partial(CNNEncoder, kernel_sizes=(9,), filters=50),
        attention=LabelAttention,
        decoder=LabelDecoder,
        classes=2,
        question_encoder=LabelVector,
    ).eval()


def costs_of_text(words: int, labels: int) -> dict[str, float]:
    """Seconds of processor time for one text, by what is done, and the process's peak memory."""
    torch.set_num_threads(1)
    split = split_of(words, labels)
    model = classifier()
    batches = [split[rows] for rows in short_enough(split.words.lengths, 64)]
    start = process_time()
    with torch.no_grad():
        outputs = [model(batch) for batch in batches]
    seconds = {"model": process_time() - start}

    model.double()
    probes: dict[str, Probe] = {"labels": Labels(), "erasure": Erasure(importances=["attention"])}
    for name, probe in probes.items():
        probe.prepare({"test": split})
        start = process_time()
        for batch in batches:
            run_probe(probe, model, batch)
        seconds[name] = process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE
    return {"words": words, "labels": labels, **seconds, "peak MB": peak, "batches": len(outputs)}


def run_probe(probe: Probe, model: AttentionClassifier, batch: Batch) -> None:
    """Examine a batch, and drop what is measured."""
    with torch.no_grad():
        outputs = model(batch)
    subject = Subject(model, batch, outputs, model.readout(batch, outputs))
    for _ in probe.examine(subject, Draws(0, probe.name)):
        pass


def costs_of_sizes(sizes: Sequence[tuple[int, int]]) -> pd.DataFrame:
    """A row per number of words and labels, each measured in a process of its own."""
    rows = []
    for words, labels in sizes:
        with get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(costs_of_text, (words, labels)))
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)
