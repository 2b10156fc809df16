"""`python -m research.filler FOLDER`: are words drawn from all texts neutral for a language model?

The verdict on words replaces words by filler. If random words alone pushed the output of a model
that knows the language, effects would be those of coherence, and not of the words that decide. So
models are trained on real sentences with planted words, whose deciding word is known, and the share
of some attentions made up for the purpose, whose mass is known as well, is computed with filler of
four kinds:

- `bag`: each word drawn by itself from all texts (what the probe does);
- `texts`: the words of another text in their order, which keeps the language;
- `frequency`: each word drawn from those that are about as common;
- `mask`: the mask token of a model that has one, else the unknown word.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit
from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.evidence.deciding_words import mean_reliability, share_on_deciding_words
from attnprobe.importance.base import Subject
from attnprobe.importance.word_swaps import Filler, Swapper, WordEffects
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.swaps import PASSES_OF_PAIR, Examiner
from attnprobe.runs.composition import composed, composing, resolved
from attnprobe.runs.load import load_run
from attnprobe.runs.run import run
from attnprobe.runs.validation import configured
from research.markdown import markdown

FREQUENCY_BINS = 10
"""Parts of about as many words of the texts each, from the rarest to the commonest."""
REAL_TEXTS = {
    "sst": ("data=sst", "data.max_tokens=20"),
    "imdb": ("data=imdb", "data.max_tokens=40"),
    "agnews": ("data=agnews_pair", "data.max_tokens=40"),
}
"""Sentences that words are planted in, cut short."""
MODELS = {
    "lstm": ("model=lstm", "model.width=32", "training.epochs=8"),
    "transformer": (
        "model=transformer",
        "model.width=32",
        "training.epochs=12",
        "training.recipe.optimizer.lr=0.003",
    ),
}
"""Models trained from scratch; a checkpoint is fine-tuned."""


@dataclass(frozen=True)
class OtherText(Filler):
    """The words of another text, in their order, and from its start again where it is shorter.

    Attributes:
        starts: where each text's words begin among all words.
        lengths: how many words it has.
    """

    starts: Int[np.ndarray, " texts"] = field(default_factory=lambda: np.zeros(0, np.int64))
    lengths: Int[np.ndarray, " texts"] = field(default_factory=lambda: np.zeros(0, np.int64))

    def draw(
        self, segment: Int[np.ndarray, " words"], samples: int, generator: torch.Generator
    ) -> Int[Tensor, "samples words"]:
        """A text for each sample, whatever its label."""
        text = torch.randint(len(self.starts), (samples, 1), generator=generator)
        place = torch.arange(len(segment))
        starts = torch.from_numpy(self.starts)[text]
        return starts + place % torch.from_numpy(self.lengths)[text]


@dataclass(frozen=True)
class AsCommon(Filler):
    """For each word of one text, words that are about as common.

    Attributes:
        candidates: of each place, as numbers of the filler.
    """

    candidates: Sequence[Int[np.ndarray, " words"]] = ()

    def draw(
        self, segment: Int[np.ndarray, " words"], samples: int, generator: torch.Generator
    ) -> Int[Tensor, "samples words"]:
        """A word for each place and sample."""
        columns = []
        for candidates in self.candidates:
            number = torch.randint(len(candidates), (samples,), generator=generator)
            columns.append(torch.from_numpy(candidates)[number])
        return torch.stack(columns, -1)


FillerOf = Callable[[Batch], Filler]
"""From a batch of one text to what its words are replaced by."""


def filler_by_frequency(bag: Filler) -> FillerOf:
    """Words that are about as common as each word of a text.

    Words are sorted into bins by how often they are in the texts, with about as many words of the
    texts in each.

    Args:
        bag: the words of all texts.
    """
    word_ids = bag.columns["ids"]
    ids, counts = word_ids.unique(return_counts=True)
    count_of = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    word_counts = np.array([count_of[number] for number in word_ids.tolist()])
    levels = np.linspace(0, 1, FREQUENCY_BINS + 1)
    edges = np.quantile(word_counts, levels[1:-1])
    bins = np.searchsorted(edges, word_counts)

    def as_common(text: Batch) -> Filler:
        candidates = []
        for number in text.ids[text.content].tolist():
            part = np.searchsorted(edges, count_of.get(number, 1))
            nearest = bins[np.abs(bins - part).argmin()]
            candidates.append(np.flatnonzero(bins == nearest))
        return AsCommon(bag.columns, bag.segment, bag.pieces, candidates)

    return as_common


def fillers(split: TextSplit, mask_piece: int | None) -> dict[str, FillerOf]:
    """The four kinds.

    Args:
        split: whose words they are.
        mask_piece: the mask token of a model that reads pieces.
    """
    texts = [split[[row]] for row in range(len(split))]
    bag = Filler.of(texts)
    skipped = 1 if bag.pieces else 0  # of texts in pieces the first words are no filler
    words = np.array([int(text.content.sum()) for text in texts])
    lengths = np.maximum(words - skipped, 1)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    other_text = OtherText(bag.columns, bag.segment, bag.pieces, starts, lengths)

    columns = {name: column[:1].clone() for name, column in bag.columns.items()}
    columns["ids"][:] = UNKNOWN
    pieces = [[mask_piece]] if mask_piece is not None else []
    mask = Filler(columns, np.zeros(1, np.int64), pieces)
    return {
        "bag": lambda _: bag,
        "texts": lambda _: other_text,
        "frequency": filler_by_frequency(bag),
        "mask": lambda _: mask,
    }


def attentions_of(words: int, deciding: int) -> dict[str, Float[Tensor, "words"]]:
    """Attentions made up for a text with one word that decides.

    Args:
        words: of the text.
        deciding: the word that decides.
    """
    next_word = (deciding + 1) % words
    elsewhere = [place for place in range(words) if place != deciding]
    focus = {
        "deciding word, 95 %": {deciding: 0.95},
        "deciding word, 60 %": {deciding: 0.60},
        "deciding word, 30 %": {deciding: 0.30},
        "first other word": {elsewhere[0]: 0.95},
        "last other word": {elsewhere[-1]: 0.95},
        "the word after it": {next_word: 0.95},
    }
    attentions = {}
    for name, weights in focus.items():
        rest = (1 - sum(weights.values())) / (words - len(weights))
        attention = torch.full((words,), rest)
        for place, weight in weights.items():
            attention[place] = weight
        attentions[name] = attention.double()
    return attentions


def effects_by_text(
    examiner: Examiner, split: TextSplit, filler_of: FillerOf, passes: int
) -> Iterator[tuple[Batch, WordEffects]]:
    """What each word of each text does with one kind of filler."""
    sharpness = examiner.sharpness(split, range(len(split)))
    for row in range(len(split)):
        text = split[[row]]
        if int(text.content.sum()) < 2:
            continue
        swapper = Swapper(examiner.run, text, filler_of(text), examiner.longest)
        generator = examiner.draws.generator(int(text.example_id))
        sets = swapper.pairs(passes // PASSES_OF_PAIR, sharpness, generator)
        yield text, sets.effects()


def shares(
    examiner: Examiner, split: TextSplit, filler_of: FillerOf, passes: int
) -> Iterator[dict[str, object]]:
    """A row per attention: its mass beyond chance, and the share that is measured."""
    excesses: dict[str, list[float]] = defaultdict(list)
    masses: dict[str, list[float]] = defaultdict(list)
    rooms = []
    strengths = []
    reliabilities = []
    hits = []
    for text, effects in effects_by_text(examiner, split, filler_of, passes):
        assert text.rationale is not None
        marks = text.rationale[0, text.content[0]]
        if not marks.any():  # cut off with the end of the text
            continue
        deciding = int(marks.float().argmax())
        hits.append(effects.strongest == deciding)
        strengths.append(effects.strength)
        reliabilities.append(effects.reliability)
        mean_share = float(effects.shares.mean())
        rooms.append(1 - mean_share)
        chance = 1 / len(marks)
        for name, attention in attentions_of(len(marks), deciding).items():
            excesses[name].append(float(attention @ effects.shares) - mean_share)
            beyond_chance = float(attention[deciding]) - chance
            masses[name].append(beyond_chance / (1 - chance))

    room = np.array([rooms])
    strength = np.array([strengths])
    reliability = mean_reliability(np.array([reliabilities]), strength)
    for name, excess in excesses.items():
        share = share_on_deciding_words(np.array([excess]), room, strength)
        yield {
            "attention": name,
            "mass beyond chance": float(np.mean(masses[name])),
            "share": share.value,
            "low": share.low,
            "high": share.high,
            "strongest word decides": float(np.mean(hits)),
            "strength": float(strength.mean()),
            "reliability": reliability,
            "texts": len(hits),
        }


def trained_on_planted_words(
    folder: Path, data: str, model: str, texts: int
) -> tuple[TrainedModel, TextSplit]:
    """A model of real sentences with planted words, and its test texts.

    Args:
        folder: of the runs; a finished one is not trained again.
        data: one of `REAL_TEXTS`.
        model: one of `MODELS`, or the folder of a checkpoint.
        texts: in the test split.
    """
    if model in MODELS:
        settings: tuple[str, ...] = MODELS[model]
        count = 3000
    else:
        settings = (
            "model=pretrained",
            f"model.path={model}",
            "training=finetune",
            "training.epochs=2",
        )
        count = 900
    directory = folder / f"{data}-{Path(model).name}"
    overrides = [
        *REAL_TEXTS[data],
        "data.plant=token",
        f"data.most={{train: {count}, validation: 200, test: {texts}}}",
        *settings,
        "probe=[permutation]",
        "figures=false",
        "logger=none",
        f"run_dir={directory}",
    ]
    with composing():
        config = composed(overrides)
        run(config)
        parts = configured(resolved(config))
    loaded = load_run(directory)
    parts.data.setup("fit")
    if loaded.classifier.reader is not None:
        parts.data.read_pieces(loaded.classifier.reader)
    return loaded.classifier, parts.data.splits["test"]


def rows_of(
    folder: Path, data: str, model: str, texts: int, passes: int
) -> Iterator[Mapping[str, object]]:
    """All rows of one model."""
    classifier, split = trained_on_planted_words(folder, data, model, texts)
    reader = classifier.reader
    mask_piece = None if reader is None else reader.tokenizer.mask_token_id
    batch = split[[0]]
    outputs = classifier.predict_step(batch)
    subject = Subject(classifier, batch, outputs, classifier.readout(batch, outputs))
    examiner = Examiner.of(subject, Draws(0, "filler"))
    for kind, filler_of in fillers(split, mask_piece).items():
        start = process_time()
        for row in shares(examiner, split, filler_of, passes):
            seconds = process_time() - start
            yield {"data": data, "model": Path(model).name, "filler": kind, **row, "s": seconds}


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """A line per data, model and filler: how far shares are from what is known, at most."""
    error = (rows["share"] - rows["mass beyond chance"]).abs()
    is_on_word = rows["attention"].str.startswith("deciding")
    errors = {
        "error, on the word that decides": error.where(is_on_word),
        "error, elsewhere": error.where(~is_on_word),
    }
    groups = rows.assign(**errors).groupby(["data", "model", "filler"], sort=False)
    lines = groups.agg(
        {
            "texts": "first",
            "strongest word decides": "first",
            "strength": "first",
            "reliability": "first",
            "error, on the word that decides": "max",
            "error, elsewhere": "max",
        }
    )
    return lines.reset_index().round(3)


def main() -> None:
    """Train, ask, and print the table of all that is there."""
    parser = argparse.ArgumentParser(prog="python -m research.filler", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the models and of the rows")
    parser.add_argument("--data", default="sst,imdb,agnews")
    parser.add_argument("--models", default="lstm,transformer", help="or a checkpoint's folder")
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--table", action="store_true", help="train nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.table:
        for data, model in product(options.data.split(","), options.models.split(",")):
            rows = list(rows_of(options.folder, data, model, options.texts, options.passes))
            path = options.folder / f"{data}-{Path(model).name}.parquet"
            pd.DataFrame(rows).to_parquet(path)
    tables = [pd.read_parquet(path) for path in sorted(options.folder.glob("*.parquet"))]
    print(markdown(summary(pd.concat(tables))))


if __name__ == "__main__":
    main()
