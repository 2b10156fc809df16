"""Time and memory of long texts that are asked for many labels."""

import resource
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log2
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers

from attnprobe.core.batch import Batch
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.data.examples import Ragged
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.pieces import with_pieces
from attnprobe.importance.base import Subject
from attnprobe.models.attention import LabelAttention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import LabelDecoder
from attnprobe.models.encoders import CNNEncoder, LabelVector, LSTMEncoder, TextEncoder
from attnprobe.models.pretrained.encoder import PretrainedEncoder
from attnprobe.probes.base import Probe
from attnprobe.probes.erasure import Erasure
from attnprobe.probes.labels import Labels
from attnprobe.probes.leave_one_out import LeaveOneOut
from attnprobe.probes.permutation import Permutation
from attnprobe.probes.swaps import Swaps

VOCABULARY = 5000
ROWS = 64
"""Rows of a batch at most, as a run has them by default."""
REPEATS = 2
"""How often each cost is measured."""
MEGABYTE = 1024
"""Kilobytes, in which the operating system counts."""
WINDOW = 128
"""Pieces that the pretrained encoder reads at a time."""


def small_bert(input_size: int) -> PretrainedEncoder:
    """An untrained BERT of two layers, whose tokenizer has a piece for each word of the texts."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = [*special, *map(spelled, range(VOCABULARY))]
    config = transformers.BertConfig(
        vocab_size=len(pieces),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
    )
    with TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.txt")
        vocabulary.write_text("\n".join(pieces), encoding="utf-8")
        transformers.BertTokenizer(str(vocabulary)).save_pretrained(folder)
        transformers.BertModel(config).save_pretrained(folder)
        return PretrainedEncoder(input_size, folder, window=WINDOW)


def spelled(number: int) -> str:
    """The word of this number."""
    return f"w{number}"


ENCODERS: Mapping[str, Callable[..., TextEncoder]] = {
    "caml": partial(CNNEncoder, kernel_sizes=(9,), filters=50),
    "laat": partial(LSTMEncoder, hidden_size=128),
    "plm_icd": small_bert,
}
PROBES: Mapping[str, Callable[[], Probe]] = {
    "labels": Labels,
    "erasure": partial(Erasure, importances=["attention"]),
    "permutation": Permutation,
    "swaps": partial(Swaps, passes=100, most_passes=100),
    "leave_one_out": LeaveOneOut,
}
CHANGE_TEXTS = ("swaps", "leave_one_out")
"""Probes that encode many changed texts."""
SIZES = ((500, 50), (1000, 50), (2000, 50), (4000, 50), (2000, 12), (2000, 25), (2000, 100))
"""Words and labels of the long texts."""


@dataclass(frozen=True)
class Case:
    """A text and what is asked of it.

    Attributes:
        encoder: of `ENCODERS`.
        words: of the text.
        labels: that the text is asked for.
        probes: of `PROBES`.
    """

    encoder: str
    words: int
    labels: int
    probes: tuple[str, ...]


def split_of(words: int, labels: int) -> TextSplit:
    """One text of random words, asked for so many labels."""
    text = np.random.default_rng(0).integers(4, VOCABULARY, words)
    passages = Passages((Passage.of_words([spelled(number) for number in text.tolist()]),))
    return TextSplit(
        example_id=np.arange(labels),
        words=Ragged.of([text] * labels, np.int32),
        vocabulary_id=np.arange(VOCABULARY),
        columns={
            "labels": np.zeros(labels, np.int64),
            "question": Ragged.of([np.array([4 + label]) for label in range(labels)], np.int32),
            "text_number": np.zeros(labels, np.int64),
        },
        passages=[passages] * labels,
    )


def classifier(encoder: str) -> AttentionClassifier:
    """CAML, LAAT or PLM-ICD, untrained."""
    torch.manual_seed(0)
    embeddings = torch.randn(VOCABULARY, 100)
    embeddings[0] = 0
    inner_size = None if encoder == "caml" else 128
    return AttentionClassifier(
        embeddings=embeddings,
        encoder=ENCODERS[encoder],
        attention=partial(LabelAttention, inner_size=inner_size),
        decoder=LabelDecoder,
        classes=2,
        question_encoder=LabelVector,
    ).eval()


def costs_of(case: Case) -> dict[str, Any]:
    """Seconds of processor time by what is done, and the memory that it took at its peak."""
    torch.set_num_threads(1)
    split = split_of(case.words, case.labels)
    model = classifier(case.encoder).double()
    if model.reader is not None:
        split, _ = with_pieces(split, model.reader)
    rows_of_batches = short_enough(split.words.lengths, ROWS, text_number=split.text_number)
    batches = [split[rows] for rows in rows_of_batches]
    before = peak_memory()

    @torch.no_grad()
    def read() -> None:
        for batch in batches:
            model(batch)

    def examine(name: str) -> None:
        probe = PROBES[name]()
        probe.prepare({"test": split})
        for batch in batches:
            run_probe(probe, model, batch)

    seconds = {"model": least_seconds(read)}
    for name in case.probes:
        seconds[name] = least_seconds(partial(examine, name))
    return {
        "encoder": case.encoder,
        "words": case.words,
        "labels asked": case.labels,
        **seconds,
        "MB": peak_memory() - before,
        "batches": len(batches),
    }


def least_seconds(work: Callable[[], None]) -> float:
    """Seconds of processor time, the least of a few: other work on the machine adds to any."""
    seconds = []
    for _ in range(REPEATS):
        start = process_time()
        work()
        seconds.append(process_time() - start)
    return min(seconds)


def peak_memory() -> float:
    """The largest memory that this process ever held, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MEGABYTE


def run_probe(probe: Probe, model: AttentionClassifier, batch: Batch) -> None:
    """Examine a batch, and drop what is measured."""
    with torch.no_grad():
        outputs = model(batch)
    subject = Subject(model, batch, outputs, model.readout(batch, outputs))
    for _ in probe.examine(subject, Draws(0, probe.name)):
        pass


def costs_of_cases(cases: Sequence[Case]) -> pd.DataFrame:
    """A row per case, each measured in a process of its own."""
    rows = []
    for case in cases:
        with get_context("spawn").Pool(1) as pool:
            rows.append(pool.apply(costs_of, (case,)))
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def growth(costs: pd.DataFrame) -> pd.DataFrame:
    """By which power of the words, and of the labels, each cost grows where these double.

    1: linear; 2: quadratic; less where a part of it is always the same. A row per pair of cases one
    of which has twice the words, or twice the labels, of the other.
    """
    measured = [name for name in ("model", *PROBES, "MB") if name in costs]
    rows = []
    for _, small in costs.iterrows():
        for grown, same in (("words", "labels asked"), ("labels asked", "words")):
            is_twice = (costs["encoder"] == small["encoder"]) & (costs[same] == small[same])
            is_twice &= costs[grown] == 2 * small[grown]
            for _, large in costs[is_twice].iterrows():
                powers = {name: log2(large[name] / small[name]) for name in measured}
                size = f"{small['words']} words, {small['labels asked']} labels"
                row = {"encoder": small["encoder"], "doubled": grown, "from": size}
                rows.append(row | powers)
    return pd.DataFrame(rows)
