"""The browser over examples: what it shows of each run, packed for the page.

Every example's numbers are there; weights per position too, unless they would make the page too large (`choose`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Int, UInt

from attnprobe.report.page.browser.choosing import choose, spans
from attnprobe.report.page.browser.packing import Blocks, Part, quantised
from attnprobe.report.page.browser.pieces import PER_PIECE, Pieces, read_pieces_of
from attnprobe.report.page.browser.sources import INNER, Source, columns_of, maps_of, numbers, weights
from attnprobe.report.page.browser.texts import Texts, is_list, read_texts
from attnprobe.report.page.runs import DOT, Group, Run
from attnprobe.report.reading import Column, HeatMap
from attnprobe.results.checksums import LARGEST_JSON
from attnprobe.results.directory import VOCABULARY, RunDirectory
from attnprobe.results.untrusted import read_json

MEGABYTES = 60
"""What a page may weigh; `--megabytes` on the command line."""
PER_VALUE = {8: 1.3, 16: 2.4}
"""Bytes of the page that a weight takes, by its number of bits: gzip gains about what base64 loses, less on real texts."""
PER_BLOCK = 120_000
"""Weights of one map in a block: the browser unpacks a block at a time, in some milliseconds."""
MOST_CLASSES = 6
"""With more classes only the probabilities of the predicted class and of the label are kept."""


@dataclass
class Browser:
    """What the page's script reads: `index` (JSON) and `blocks` (name → base64). `remark` says which examples have
    heat maps where not all do."""

    index: dict[str, Any]
    blocks: Blocks = field(default_factory=Blocks)
    remark: str = ""


@dataclass(frozen=True)
class Browsed:
    """A run on its way into the page: its texts and the number that these have there, its ids, maps and columns, which
    numbers of `Texts.vocabulary` are unknown to its model, and the pieces that it reads, where it reads pieces of words."""

    run: Run
    title: str
    number: int
    text: int
    texts: Texts
    ids: Int[np.ndarray, " examples"]
    maps: list[tuple[Source, HeatMap]]
    columns: list[tuple[Source, Column]]
    unknown: UInt[np.ndarray, " unknown"]
    pieces: Pieces | None

    @property
    def values(self) -> int:
        """Weights of all its maps, and what its pieces take."""
        items, words = int(self.texts.items.sum()), int(self.texts.lengths.sum())
        pieces = 0 if self.pieces is None else PER_PIECE * int(self.pieces.lengths.sum())
        return pieces + sum(words if source.key == INNER else items for source, _ in self.maps)

    def column(self, source: Source, column: Column) -> np.ndarray:
        """A number of every example."""
        return numbers(self.run, source, column, self.ids, self.texts)


def browse(
    groups: Sequence[Group],
    *,
    words: bool = True,
    megabytes: float = MEGABYTES,
    tell: Callable[[str], None] = lambda _: None,
) -> Browser:
    """Pack the examples of all runs.

    Args:
        groups: the runs.
        words: False leaves the texts out; positions, numbers and classes stay.
        megabytes: what all blocks together may weigh, about: weights are kept in 16 bits where they take less than half of
            it, else in 8, and else for some examples of each run only (`choose`).
        tell: is told which run is being read.
    """
    browser = Browser({"runs": [], "texts": [], "words": words})
    known: dict[str, tuple[int, Texts]] = {}
    browsed: list[Browsed] = []
    for group in groups:
        for run in group.runs:
            title = DOT.join([group.title, f"seed {run.seed}"])
            browsed.append(taken_in(browser, run, title, len(browsed), known, words=words))
    values = sum(one.values for one in browsed)
    left = megabytes * 1e6 - browser.blocks.size
    bits = 16 if values * PER_VALUE[16] <= left / 2 else 8
    share = min(1.0, max(0.0, left / max(1.0, values * PER_VALUE[bits])))
    for one in browsed:
        tell(f"examples of {one.title}")
        browser.index["runs"].append(add_run(browser, one, bits, share))
    if share < 1:
        browser.remark = (
            f"Heat maps are kept for {share:.0%} of each run's examples, so that the page stays below {megabytes:g} MB: "
            f"half of these are spread evenly over the split, the others have the largest and smallest values of the "
            f"measures that the list can be sorted by. The numbers are of all examples; `--megabytes` keeps more."
        )
    return browser


def taken_in(
    browser: Browser, run: Run, title: str, number: int, known: dict[str, tuple[int, Texts]], *, words: bool
) -> Browsed:
    """Read a run's texts, and pack them unless another run's are the same; the words are not kept in memory."""
    texts = read_texts(RunDirectory(run.directory), run.split, words=words)
    mark = texts.fingerprint
    if mark not in known:
        known[mark] = (len(known), texts.without_words())
        name = f"texts-{known[mark][0]}"
        browser.blocks.add(name, *texts.parts())
        browser.index["texts"].append(name)
    text, lengths = known[mark]
    unknown = unknown_words(run, texts.vocabulary or ())
    pieces = read_pieces_of(RunDirectory(run.directory), run.split, lengths.items) if words else None
    return Browsed(run, title, number, text, lengths, ids_of(run), maps_of(run), columns_of(run), unknown, pieces)


def unknown_words(run: Run, words: Sequence[str]) -> UInt[np.ndarray, " unknown"]:
    """The places of the words that the run's model has no vector of its own for; none where its tokenizer cuts words into
    pieces that it knows, or where the run has no vocabulary."""
    directory, model = RunDirectory(run.directory), run.manifest.get("training", {}).get("model", {})
    if not words or "_target_" in model or VOCABULARY not in directory.manifest()["files"]:
        return np.zeros(0, np.uint32)
    known = read_json(directory.file(VOCABULARY), limit=LARGEST_JSON)
    return np.array([place for place, word in enumerate(words) if word not in known], np.uint32)


def ids_of(run: Run) -> Int[np.ndarray, " examples"]:
    """The ids of the run's examples, ascending."""
    pieces = RunDirectory(run.directory).example_pieces(run.split, [])
    return np.concatenate([np.zeros(0, np.int64), *(piece["example_id"].to_numpy() for piece in pieces)])


def add_run(browser: Browser, one: Browsed, bits: int, share: float) -> dict[str, Any]:
    """Pack one run's numbers and weights into blocks; returns what the index says of it."""
    run, count = one.run, len(one.ids)
    sorting = (one.column(source, column) for source, column in one.columns if column.sorts)
    kept = choose(sorting, count, share)
    parts = [
        Part("example_id", "f8", count, lambda: one.ids.astype(np.float64)),
        Part("kept", "u1", count, lambda: kept.astype(np.uint8)),
    ]
    parts.append(Part.of("unknown", one.unknown))
    decisions, facts, classes = decided(run)
    parts += [Part.of(name, values) for name, values in decisions.items()]
    parts += [
        Part(source.key, "f4", count, lambda pair=(source, column): one.column(*pair).astype(np.float32))  # type: ignore[misc]
        for source, column in one.columns
    ]
    browser.blocks.add(f"numbers-{one.number}", parts, facts)
    rows = np.flatnonzero(kept)
    stretches = spans(one.texts.lengths[kept], PER_BLOCK)
    for place, (source, _) in enumerate(one.maps):
        dense = weights(run, source, one.texts, rows, one.ids, stretches)
        for number, values in enumerate(dense):
            browser.blocks.add(f"maps-{one.number}-{place}-{number}", [Part.of("weights", quantised(values, bits))])
    pieces = None if one.pieces is None else one.pieces.add(browser.blocks, one.number, kept, stretches, bits)
    return {
        "title": one.title,
        "data": run.data,
        "run_id": run.run_id,
        "examples": count,
        "classes": [str(name) for name in run.manifest.get("classes") or range(classes)],
        "texts": browser.index["texts"][one.text],
        "numbers": f"numbers-{one.number}",
        "blocks": [{"first": first, "count": stop - first} for first, stop in stretches],
        "levels": 2**bits - 2,
        "maps": [
            {
                "key": source.key,
                "title": f"{shown.title}: {source.site}" if source.site else shown.title,
                "site": source.site,
                "about": shown.about,
                "relative": shown.relative,
                "inner": source.key == INNER,
                "block": f"maps-{one.number}-{place}",
            }
            for place, (source, shown) in enumerate(one.maps)
        ],
        "measures": [
            {
                "key": source.key,
                "title": column.title,
                "digits": column.digits,
                "sorts": column.sorts,
                "truth": column.truth,
            }
            for source, column in one.columns
        ],
        "hierarchical": one.texts.sentence is not None,
        "pieces": pieces,
    }


def decided(run: Run) -> tuple[dict[str, np.ndarray], dict[str, Any], int]:
    """Labels, predictions and probabilities of every example as arrays, what of them are lists as facts, and how many
    classes there are."""
    directory = RunDirectory(run.directory)
    schema = directory.example_columns(run.split)
    several = is_list(schema.field("label").type)
    candidates = "candidates" in schema.names
    by_column: dict[str, list[Any]] = {"label": [], "prediction": [], "probability": [], "candidates": []}
    columns = ["label", "prediction", "probability", *(["candidates"] if candidates else [])]
    for piece in directory.example_pieces(run.split, columns):
        for side in ("label", "prediction"):
            values = piece[side]
            by_column[side].append(
                [[c for c, on in enumerate(row) if on] for row in values.to_pylist()]
                if several
                else values.to_numpy().astype(np.int32)
            )
        by_column["probability"].append(np.array(piece["probability"].to_pylist(), np.float32))
        by_column["candidates"] += (
            [row and list(map(str, row)) for row in piece["candidates"].to_pylist()] if candidates else []
        )
    probability = np.concatenate(by_column["probability"])
    facts: dict[str, Any] = {"candidates": by_column["candidates"]} if candidates else {}
    arrays: dict[str, np.ndarray] = {}
    for side in ("label", "prediction"):
        if several:
            facts[side] = [row for rows in by_column[side] for row in rows]
        else:
            arrays[side] = np.concatenate(by_column[side])
    classes = probability.shape[1]
    if classes <= MOST_CLASSES or several:
        arrays["probability"] = probability.ravel()
    else:
        for side in ("label", "prediction"):
            chosen = np.clip(arrays[side], 0, classes - 1)
            arrays[f"p_{side}"] = np.take_along_axis(probability, chosen[:, None].astype(np.int64), 1).ravel()
    return arrays, facts, classes
