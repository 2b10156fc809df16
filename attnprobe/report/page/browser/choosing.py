"""The browser over examples: what it shows of each run, packed for the page.

Every example's numbers are there; weights per position too, unless they would make the page too large (`choose`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Bool, Float, Int

from attnprobe.report.page.browser.columns import MAPS, MEASURES, Map
from attnprobe.report.page.browser.packing import pack, quantised
from attnprobe.report.page.browser.texts import Texts, read_texts, starts
from attnprobe.report.page.runs import DOT, Group, Run
from attnprobe.results.directory import RunDirectory

MEGABYTES = 60
"""What a page may weigh; `--megabytes` on the command line."""
PER_VALUE = {8: 1.3, 16: 2.4}
"""Bytes of the page that a weight takes in so many bits: gzip gains about what base64 loses, less on real texts."""
PER_BLOCK = 120_000
"""Weights of one map in a block: the browser unpacks a block at a time, in some milliseconds."""
MOST_CLASSES = 6
"""With more classes only the probabilities of the predicted class and of the label are kept."""


@dataclass
class Browser:
    """What the page's script reads: `index` (JSON) and `blocks` (name → base64). `remark` says which examples have
    heat maps where not all do."""

    index: dict[str, Any]
    blocks: dict[str, str] = field(default_factory=dict)
    remark: str = ""

    @property
    def size(self) -> int:
        """Characters of all blocks."""
        return sum(map(len, self.blocks.values()))


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
    runs = [run for group in groups for run in group.runs]
    browser = Browser({"runs": [], "texts": [], "words": words})
    known: dict[str, int] = {}
    numbers_of = []
    for run in runs:
        examples = read_example_table(run)
        texts = read_texts(examples, words=words)
        mark = texts.fingerprint
        if mark not in known:
            known[mark] = len(known)
            browser.blocks[f"texts-{known[mark]}"] = texts.packed()
            browser.index["texts"].append(f"texts-{known[mark]}")
        numbers_of.append((known[mark], map_sources(run, examples), int(texts.items.sum()), int(texts.lengths.sum())))
    values = sum(
        sum(words_ if one.key == "word_attention" else items for one in maps) for _, maps, items, words_ in numbers_of
    )
    left = megabytes * 1e6 - browser.size
    bits = 16 if values * PER_VALUE[16] <= left / 2 else 8
    share = min(1.0, max(0.0, left / max(1.0, values * PER_VALUE[bits])))
    for group in groups:
        for run in group.runs:
            number = len(browser.index["runs"])
            text, maps, _, _ = numbers_of[number]
            tell(f"examples of {group.title}, seed {run.seed}")
            browser.index["runs"].append(add_run(browser, group, run, number, text, maps, bits, share))
    if share < 1:
        browser.remark = (
            f"Heat maps are kept for {share:.0%} of each run's examples, so that the page stays below {megabytes:g} MB: "
            f"half of these are spread evenly over the split, the others have the largest and smallest values of the "
            f"measures that the list can be sorted by. The numbers are of all examples; `--megabytes` keeps more."
        )
    return browser


def add_run(
    browser: Browser, group: Group, run: Run, number: int, text: int, maps: Sequence[Map], bits: int, share: float
) -> dict[str, Any]:
    """Pack one run's numbers and weights into blocks; returns what the index says of it."""
    examples = read_example_table(run)
    texts = read_texts(examples, words=False)
    ids = examples["example_id"].to_numpy()
    columns = measure_columns(run, examples, texts)
    kept = choose(columns, len(ids), share)
    arrays: dict[str, np.ndarray] = {"example_id": ids.astype(np.float64), "kept": kept.astype(np.uint8)}
    facts: dict[str, Any] = {}
    for side in ("label", "prediction"):
        column = examples[side]
        if pa.types.is_list(column.type):
            facts[side] = [[c for c, on in enumerate(row) if on] for row in column.to_pylist()]
        else:
            arrays[side] = column.to_numpy().astype(np.int32)
    arrays |= {key: values.astype(np.float32) for key, values in columns.items()}
    probability = np.stack([np.asarray(row, np.float32) for row in examples["probability"].to_pylist()])
    if probability.shape[1] <= MOST_CLASSES or "label" in facts:
        arrays["probability"] = probability.ravel()
    else:
        for side in ("label", "prediction"):
            chosen = np.clip(arrays[side], 0, probability.shape[1] - 1)
            arrays[f"p_{side}"] = np.take_along_axis(probability, chosen[:, None].astype(np.int64), 1).ravel()
    if "candidates" in examples.column_names:
        facts["candidates"] = [
            None if row is None else [str(one) for one in row] for row in examples["candidates"].to_pylist()
        ]
    browser.blocks[f"numbers-{number}"] = pack(arrays, facts)
    blocks: list[dict[str, Any]] = []
    dense = weights(run, examples, texts, maps)
    for first, stop in spans(texts.lengths[kept], PER_BLOCK):
        name = f"maps-{number}-{len(blocks)}"
        rows = np.flatnonzero(kept)[first:stop]
        parts = {}
        for one in maps:
            lengths = texts.lengths if one.key == "word_attention" else texts.items
            parts[one.key] = quantised(dense[one.key][positions_of(rows, lengths)], bits)
        browser.blocks[name] = pack(parts)
        blocks.append({"name": name, "first": int(first), "count": int(stop - first)})
    classes = [str(name) for name in run.manifest.get("classes") or range(probability.shape[1])]
    return {
        "title": DOT.join([group.title, f"seed {run.seed}"]),
        "data": run.data,
        "run_id": run.run_id,
        "examples": len(ids),
        "classes": classes,
        "texts": browser.index["texts"][text],
        "numbers": f"numbers-{number}",
        "blocks": blocks,
        "levels": 2**bits - 2,
        "maps": [{"key": m.key, "title": m.title, "about": m.about, "relative": m.relative} for m in maps],
        "measures": [
            {"key": m.key, "title": m.title, "digits": m.digits, "sorts": m.sorts} for m in MEASURES if m.key in columns
        ],
        "hierarchical": texts.sentence is not None,
    }


def read_example_table(run: Run) -> pa.Table:
    """The run's examples, by example.

    Raises:
        UserError: they are not there.
    """
    return RunDirectory(run.directory).examples(run.split).sort_by("example_id").combine_chunks()


def map_sources(run: Run, examples: pa.Table) -> list[Map]:
    """The maps that a run has weights for."""
    there = set()
    for probe in {one.source[0] for one in MAPS if one.source is not None} & set(run.probes):
        column = RunDirectory(run.directory).table(probe, columns=["metric"])["metric"]
        there |= {(probe, str(metric)) for metric in pc.unique(column).to_pylist()}
    return [one for one in MAPS if (one.source in there if one.source else one.key in examples.column_names)]


def weights(run: Run, examples: pa.Table, texts: Texts, maps: Sequence[Map]) -> dict[str, Float[np.ndarray, " values"]]:
    """Every map's weights, all texts in a row; NaN throughout a text that has none.

    Raises:
        ValueError: a table has a position that its text does not have.
    """
    found: dict[str, np.ndarray] = {}
    ids, begin = examples["example_id"].to_numpy(), starts(texts.items)
    for one in maps:
        if one.source is None:
            flat = pc.list_flatten(examples[one.key])
            flat = pc.list_flatten(flat) if pa.types.is_list(flat.type) else flat
            found[one.key] = flat.to_numpy().astype(np.float64)
    for probe in dict.fromkeys(one.source[0] for one in maps if one.source is not None):
        columns = ["metric", "example_id", "step", "value"]
        table = RunDirectory(run.directory).table(probe, columns=columns).to_pandas()
        for one in maps:
            if one.source is None or one.source[0] != probe:
                continue
            rows = table[table["metric"] == one.source[1]]
            value, step = rows["value"].to_numpy(), rows["step"].to_numpy()
            known = ~(np.isnan(value) | np.isnan(step))
            row = np.searchsorted(ids, rows["example_id"].to_numpy()[known])
            if (row >= len(ids)).any() or (step[known] >= texts.items[row]).any():
                raise ValueError(f"{run.directory}: {probe}/{one.source[1]} has a position that its text does not have")
            dense = np.zeros(int(texts.items.sum()))
            dense[begin[row] + step[known].astype(np.int64)] = value[known]
            there = np.zeros(len(ids), bool)
            there[row] = True
            found[one.key] = np.where(np.repeat(there, texts.items), dense, np.nan)
    return found


def measure_columns(run: Run, examples: pa.Table, texts: Texts) -> dict[str, Float[np.ndarray, " examples"]]:
    """Each measure of every example, by its key; NaN where it is undefined."""
    ids = examples["example_id"].to_numpy()
    own = {
        "max_attention": largest(pc.list_flatten(examples["attention"]).to_numpy().astype(np.float64), texts.items),
        "length": texts.items.astype(np.float64),
    }
    if not pa.types.is_list(examples["label"].type):  # with several labels at once no class is ahead of another
        own["margin"] = np.array([margin(np.asarray(row, float)) for row in examples["probability"].to_pylist()])
    without_step = run.numbers[run.numbers["step"].isna()]
    by_metric = dict(list(without_step.groupby(["probe", "metric"], observed=True, sort=False)))
    found: dict[str, np.ndarray] = {}
    for measure in MEASURES:
        if measure.probe is None:
            found |= {measure.key: own[measure.key]} if measure.key in own else {}
            continue
        rows: pd.DataFrame | None = by_metric.get((measure.probe, measure.metric))
        if rows is not None:
            values = rows.set_index("example_id")["value"].reindex(ids).to_numpy()
            found[measure.key] = 1 - values if measure.one_minus else values
    return found


def margin(probability: Float[np.ndarray, " classes"]) -> float:
    """How far the most probable class is ahead of the next, 0 to 1."""
    first, second = np.sort(probability)[::-1][:2]
    return float(first - second)


def largest(
    flat: Float[np.ndarray, " values"], lengths: Int[np.ndarray, " examples"]
) -> Float[np.ndarray, " examples"]:
    """The largest value of each text; NaN for an empty one."""
    if len(lengths) == 0 or len(flat) == 0:
        return np.full(len(lengths), np.nan)
    begin = starts(lengths)
    found = np.maximum.reduceat(np.append(flat, -np.inf), np.minimum(begin, len(flat)))
    return np.where(lengths > 0, found, np.nan)


def choose(
    columns: dict[str, Float[np.ndarray, " examples"]], count: int, share: float
) -> Bool[np.ndarray, " examples"]:
    """Which examples keep their weights per position: all where `share` is 1.

    Half of `share · count` is spread evenly over the split; the others are those with the largest and smallest values of
    the measures that the list can be sorted by, taken in turn, so that what stands at either end of a sorted list can be
    looked at.
    """
    kept = np.ones(count, bool)
    wanted = int(share * count)
    if wanted >= count:
        return kept
    kept[:] = False
    kept[np.linspace(0, count - 1, wanted // 2).round().astype(int)] = True
    orders = []
    for measure in MEASURES:
        if measure.sorts and measure.key in columns:
            values = columns[measure.key]
            order = np.argsort(values, kind="stable")[: np.count_nonzero(~np.isnan(values))]
            orders += [np.resize(order, count), np.resize(order[::-1], count)] if len(order) else []
    if orders:
        in_turn = np.stack(orders).T.ravel()
        in_turn = in_turn[~kept[in_turn]]
        _, first = np.unique(in_turn, return_index=True)
        kept[in_turn[np.sort(first)[: wanted - np.count_nonzero(kept)]]] = True
    return kept


def spans(lengths: Int[np.ndarray, " examples"], most: int) -> list[tuple[int, int]]:
    """Stretches `[first, stop)` of examples with about `most` positions each, at least one example in each."""
    if len(lengths) == 0:
        return []
    part = (np.cumsum(lengths.astype(np.int64)) - 1) // most
    edges = [0, *(np.flatnonzero(np.diff(np.maximum(part, 0))) + 1).tolist(), len(lengths)]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def positions_of(
    rows: Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " examples"]
) -> Int[np.ndarray, " positions"]:
    """Where the texts of these rows lie when all texts are in a row."""
    begin = starts(lengths)
    return np.concatenate([np.arange(begin[r], begin[r] + int(lengths[r])) for r in rows] or [np.zeros(0, np.int64)])
