"""CAML and LAAT in a plain loop, as they are published, beside attnprobe's on the same texts.

Nothing here uses a model, a data module or a trainer of attnprobe: labels are rows of matrices, a
text has all of them at once.
"""

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from sklearn.metrics import f1_score
from torch import Tensor, nn

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.runs.composition import composed, composing
from attnprobe.runs.run import run

MODELS = ("caml", "laat")
PLAIN = {"plain loop": False, "plain loop, from label vectors": True}
"""The loop's trainings → whether u_l and w_l are linear in a vector of the label."""
BATCH = 32
"""Texts of a batch."""
EMBEDDING = 64
SIZES = {"train": 3000, "validation": 500, "test": 1000}
LEAST_TEXTS = 2
"""Training texts that a word of the vocabulary is in."""


@dataclass(frozen=True)
class Texts:
    """The texts of a split, as numbers.

    Attributes:
        ids: the words of each text.
        labels: 1 where a text has a label.
    """

    ids: list[Int[Tensor, "words"]]
    labels: Float[Tensor, "texts labels"]


class LinearInVectors(nn.Module):
    """A weight per label that is linear in a vector of the label, as attnprobe's.

    Args:
        features: of a weight.
        vectors: of the labels, which other weights may share.
        bias: with a bias per label, linear in its vector, too.
    """

    def __init__(self, features: int, vectors: nn.Embedding, *, bias: bool) -> None:
        super().__init__()
        self.vectors = vectors
        self.map = nn.Linear(EMBEDDING, features, bias=False)
        self.offset = nn.Linear(EMBEDDING, 1) if bias else None

    @property
    def weight(self) -> Float[Tensor, "labels features"]:
        """The labels' weights."""
        return self.map(self.vectors.weight)

    @property
    def bias(self) -> Float[Tensor, "labels"] | None:
        """Their biases, where they have any."""
        return None if self.offset is None else self.offset(self.vectors.weight).squeeze(-1)


class PlainModel(nn.Module):
    """CAML (a convolution, u_l · h_t) or LAAT (an LSTM, u_l · tanh(W h_t)), all labels at once.

    Args:
        kind: of `MODELS`.
        words: of the vocabulary.
        labels: how many.
        from_vectors: u_l, w_l and b_l are linear in a vector of the label, as attnprobe's; else
            they are free, as published.
    """

    def __init__(self, kind: str, words: int, labels: int, *, from_vectors: bool = False) -> None:
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(words, EMBEDDING, padding_idx=0)
        if kind == "caml":
            self.convolution = nn.Conv1d(EMBEDDING, 50, 9, padding=4)
            size = 50
            inner = 50
        else:
            self.lstm = nn.LSTM(EMBEDDING, 64, batch_first=True, bidirectional=True)
            size = 128
            inner = 64
            self.inner = nn.Linear(size, inner, bias=False)
        self.dropout = nn.Dropout(0.2)
        self.query: nn.Linear | LinearInVectors = nn.Linear(inner, labels, bias=False)
        self.output: nn.Linear | LinearInVectors = nn.Linear(size, labels)
        if from_vectors:
            vectors = nn.Embedding(labels, EMBEDDING)
            self.query = LinearInVectors(inner, vectors, bias=False)
            self.output = LinearInVectors(size, vectors, bias=True)

    def forward(self, ids: Int[Tensor, "batch words"]) -> Float[Tensor, "batch labels"]:
        """One logit per label."""
        mask = ids > 0
        vectors = self.embedding(ids)
        if self.kind == "caml":
            hidden = self.convolution(vectors.transpose(1, 2)).relu().transpose(1, 2)
        else:
            lengths = mask.sum(1)
            packed = nn.utils.rnn.pack_padded_sequence(
                vectors, lengths, batch_first=True, enforce_sorted=False
            )
            hidden, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        hidden = self.dropout(hidden)
        features = hidden if self.kind == "caml" else self.inner(hidden).tanh()
        scores = features @ self.query.weight.T
        scores = scores.masked_fill(~mask.unsqueeze(-1), -torch.inf)
        attended = scores.softmax(1).transpose(1, 2) @ hidden  # [batch, labels, features]
        return (attended * self.output.weight).sum(-1) + self.output.bias


def read(source: Path, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The first texts of each split, which are also written for attnprobe to read.

    Raises:
        UserError: the source lacks a file.
    """
    missing = [split for split in SIZES if not (source / f"{split}.jsonl.gz").exists()]
    if missing:
        raise UserError(f"{source} has no {missing[0]}.jsonl.gz: expected a folder of GoEmotions")
    splits = {}
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in SIZES.items():
        rows: list[dict[str, Any]] = []
        with gzip.open(source / f"{split}.jsonl.gz", "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                words = str(row["text"]).lower().split()
                if words and len(rows) < size:
                    rows.append({"text": " ".join(words), "labels": row["labels"]})
        splits[split] = rows
        lines = [json.dumps(row) for row in rows]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return splits


def numbered(splits: dict[str, list[dict[str, Any]]]) -> tuple[dict[str, Texts], int]:
    """The splits as numbers, and how many words the vocabulary has; 1 is any other word."""
    frequency = Counter(word for row in splits["train"] for word in set(str(row["text"]).split()))
    words = sorted(word for word, texts in frequency.items() if texts >= LEAST_TEXTS)
    number = {word: place + 2 for place, word in enumerate(words)}
    names = sorted(
        {str(name) for rows in splits.values() for row in rows for name in row["labels"]}
    )
    texts = {}
    for split, rows in splits.items():
        ids = []
        labels = torch.zeros(len(rows), len(names))
        for place, row in enumerate(rows):
            ids.append(torch.tensor([number.get(word, 1) for word in str(row["text"]).split()]))
            for name in row["labels"]:
                labels[place, names.index(str(name))] = 1
        texts[split] = Texts(ids, labels)
    return texts, len(words) + 2


def trained(model: PlainModel, texts: dict[str, Texts], epochs: int) -> PlainModel:
    """The model after the epoch with the best accuracy of validation decisions."""
    train = texts["train"]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5, amsgrad=True)
    loss_of = nn.BCEWithLogitsLoss()
    best = model.state_dict()
    best_accuracy = -1.0
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(len(train.ids)).split(BATCH):
            ids = nn.utils.rnn.pad_sequence([train.ids[row] for row in rows.tolist()], True)
            optimizer.zero_grad()
            loss_of(model(ids), train.labels[rows]).backward()
            optimizer.step()
        decision = predicted(model, texts["validation"]) > 0.5
        accuracy = float((decision == texts["validation"].labels.bool()).float().mean())
        if accuracy > best_accuracy:
            best = {name: value.clone() for name, value in model.state_dict().items()}
            best_accuracy = accuracy
    model.load_state_dict(best)
    return model


@torch.no_grad()
def predicted(model: PlainModel, texts: Texts) -> Float[Tensor, "texts labels"]:
    """The probability of each label."""
    model.eval()
    parts = []
    for start in range(0, len(texts.ids), BATCH):
        ids = nn.utils.rnn.pad_sequence(texts.ids[start : start + BATCH], True)
        parts.append(model(ids).sigmoid())
    return torch.cat(parts)


def scores(probability: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The metrics of the field, by scikit-learn and plain loops over texts."""
    decision = probability > 0.5
    present = labels.any(0)
    at_five = []
    r_precision = []
    for text_probability, text_labels in zip(probability, labels, strict=True):
        ranked = text_labels[np.argsort(-text_probability, kind="stable")]
        at_five.append(ranked[:5].mean())
        if text_labels.any():
            r_precision.append(ranked[: int(text_labels.sum())].mean())
    return {
        "accuracy": float((decision == labels).mean()),
        "micro F1": f1_score(labels, decision, average="micro", zero_division=0),
        "macro F1": f1_score(
            labels[:, present], decision[:, present], average="macro", zero_division=0
        ),
        "P@5": float(np.mean(at_five)),
        "R-precision": float(np.mean(r_precision)),
    }


def compare_trainings(
    kind: str, source: Path, folder: Path, epochs: int, seeds: Sequence[int]
) -> pd.DataFrame:
    """All trainings of one model on the same texts, a row each and seed.

    Args:
        kind: of `MODELS`.
        source: folder of GoEmotions.
        folder: where texts and runs are written.
        epochs: of each training.
        seeds: of each training.

    Raises:
        UserError: the source lacks a file.
    """
    splits = read(source, folder / "texts")
    texts, words = numbered(splits)
    labels = texts["test"].labels.numpy().astype(bool)
    rows = []
    for seed in seeds:
        for training, from_vectors in PLAIN.items():
            torch.manual_seed(seed)
            model = PlainModel(kind, words, labels.shape[1], from_vectors=from_vectors)
            model = trained(model, texts, epochs)
            plain_scores = scores(predicted(model, texts["test"]).numpy(), labels)
            rows.append({"model": kind, "seed": seed, "training": training, **plain_scores})

        directory = folder / f"{kind}-{seed}"
        settings = overrides(kind, folder / "texts", directory, epochs, seed, labels.shape[1])
        with composing():
            run(composed(settings))
        run_scores = scores_of_run(directory)
        rows.append({"model": kind, "seed": seed, "training": "attnprobe", **run_scores})
        pd.DataFrame(rows).to_csv(folder / f"{kind}.csv", index=False)
    return pd.DataFrame(rows)


def scores_of_run(directory: Path) -> dict[str, float]:
    """What attnprobe measured of its own training, by the names of `scores`."""
    results = attnprobe.read_results(directory, probe="performance")
    numbers = results.set_index("metric")["value"]
    return {
        "accuracy": numbers["accuracy"],
        "micro F1": numbers["label_f1_micro"],
        "macro F1": numbers["label_f1_macro"],
        "P@5": numbers["precision_at_5"],
        "R-precision": numbers["r_precision"],
    }


def overrides(
    kind: str, texts: Path, directory: Path, epochs: int, seed: int, labels: int
) -> list[str]:
    """The command line of attnprobe's training."""
    widths = ["model.width=64", "model.attention.inner_size=64"] if kind == "laat" else []
    return [
        "task=labels",
        "data=label_files",
        f"data.path={texts}",
        "data.tokenizer=whitespace",
        f"data.min_df={LEAST_TEXTS}",
        "data.source.others=null",
        f"data.embedding_size={EMBEDDING}",
        f"data.batch_size={BATCH * labels}",
        f"data.eval_batch_size={BATCH * labels}",
        f"model={kind}",
        "model.encoder.dropout=0.2",
        *widths,
        f"training.epochs={epochs}",
        "training.recipe.skip_epochs=0",
        f"seed={seed}",
        "probe=[]",
        "trainer.accelerator=cpu",
        "figures=false",
        "logger=none",
        f"run_dir={directory}",
        "on_finished=skip",
    ]
