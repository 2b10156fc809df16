"""Where the browser's heat maps and numbers come from: the readings of the run's probes, and the examples' table."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int

from attnprobe.report.page.browser.texts import Texts, is_list, lengths_of, starts
from attnprobe.report.page.runs import Run
from attnprobe.report.reading import Column, HeatMap, columns_in, maps_in
from attnprobe.results.directory import RunDirectory
from attnprobe.results.positions import check_positions
from attnprobe.results.schema import SITE
from attnprobe.results.table import read_pieces, sites_in

OWN_MAPS = (
    HeatMap("attention", "Attention", "the model's own; the weights of a text sum to 1"),
    HeatMap("word_attention", "Attention to words", "within each sentence; sums to 1 there"),
)
"""The maps of the examples' table: the first comes before all others, the second after them."""
INNER = "word_attention"
"""The map over the words of a text whose items are sentences."""
OWN_COLUMNS = (
    Column("max_attention", "largest attention weight"),
    Column("margin", "margin of the prediction"),
    Column("length", "positions", digits=0),
    Column("special_mass", "share of the attention on no word of the text"),
)
"""The numbers of the examples' table."""


@dataclass(frozen=True)
class Source:
    """A heat map or a number of one run, and where it is: in a probe's table, or (`probe` None) in the examples' own.

    `key` names it in the page. `site`: of which of the model's attentions, where the table has several.
    """

    probe: str | None
    shown: HeatMap | Column
    site: str = ""

    @property
    def key(self) -> str:
        """Its name in the page, unique there."""
        name = self.shown.metric if self.probe is None else f"{self.probe}-{self.shown.metric}"
        return name + re.sub(r"\W+", "_", f" {self.site}" if self.site else "")


def maps_of(run: Run) -> list[tuple[Source, HeatMap]]:
    """The heat maps that a run has weights for."""
    names = RunDirectory(run.directory).example_columns(run.split).names
    first, last = ([(Source(None, one), one)] if one.metric in names else [] for one in OWN_MAPS)
    of_probes = [
        (Source(probe, one, site), one) for probe, one in maps_in(run.numbers) for site in sites(run, probe, one)
    ]
    return [*first, *of_probes, *last]


def sites(run: Run, probe: str, shown: HeatMap) -> list[str]:
    """The attentions that a map is of, layers and heads in the order of their numbers; one without a name of most."""
    tables = [each[probe] for each in run.numbers.tables if probe in each]
    names = {site for one in tables for site in sites_in(one.path, shown.metric)}
    return sorted(names, key=lambda site: [int(number) for number in re.findall(r"\d{1,9}", site)])


def columns_of(run: Run) -> list[tuple[Source, Column]]:
    """The numbers that are shown with each example: first those that the list can be sorted by, leading ones before all."""
    columns = [(Source(probe, one), one) for probe, one in columns_in(run.numbers)]
    several = is_list(RunDirectory(run.directory).example_columns(run.split).field("label").type)
    # with several labels at once no class is ahead of another
    absent = {"margin"} if several else set()
    absent |= {"special_mass"} - set(RunDirectory(run.directory).example_columns(run.split).names)
    columns += [(Source(None, one), one) for one in OWN_COLUMNS if one.metric not in absent]
    return sorted(columns, key=lambda pair: (not pair[1].sorts, not pair[1].leads))


@dataclass(frozen=True)
class Records:
    """Numbers of some positions: `example_id`, `step`, `value`, sorted by example."""

    example_id: Int[np.ndarray, " rows"]
    step: Int[np.ndarray, " rows"]
    value: Float[np.ndarray, " rows"]

    def __getitem__(self, rows: slice) -> "Records":
        return Records(self.example_id[rows], self.step[rows], self.value[rows])


def records(run: Run, source: Source) -> Iterator[Records]:
    """The weights of a map, by example, a few at a time; undefined ones are left out."""
    if source.probe is None:
        yield from _of_examples(run, source.key)
        return
    for table in (each[source.probe] for each in run.numbers.tables if source.probe in each):
        for piece in read_pieces(table.path, metrics=[source.shown.metric], with_steps=True):
            value = piece["value"].to_numpy()
            known = ~np.isnan(value)
            if source.site:
                known &= pc.equal(piece[SITE].cast(pa.string()), source.site).to_numpy()
            ids, step = (piece[name].to_numpy()[known] for name in ("example_id", "step"))
            yield Records(ids, step.astype(np.int64), value[known])


def _of_examples(run: Run, column: str) -> Iterator[Records]:
    for piece in RunDirectory(run.directory).example_pieces(run.split, [column]):
        lists = flattened(piece[column])
        lengths = lengths_of(lists).astype(np.int64)
        step = np.arange(lengths.sum()) - np.repeat(starts(lengths), lengths)
        value = pc.list_flatten(lists).to_numpy().astype(np.float64)
        yield Records(np.repeat(piece["example_id"].to_numpy(), lengths), step, value)


def flattened(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A list of each example; of lists of lists the inner ones one after the other."""
    if not is_list(column.type.value_type):
        return column
    outer, inner = lengths_of(column), pc.list_flatten(column)
    ends = np.concatenate([[0], np.cumsum(lengths_of(inner).astype(np.int64))])
    offsets = ends[np.concatenate([[0], np.cumsum(outer.astype(np.int64))])]
    values = pc.list_flatten(inner).combine_chunks()
    return pa.chunked_array([pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)])


def weights(
    run: Run,
    source: Source,
    texts: Texts,
    rows: Int[np.ndarray, " kept"],
    ids: Int[np.ndarray, " examples"],
    spans: list[tuple[int, int]],
) -> Iterator[Float[np.ndarray, " values"]]:
    """A map's weights for each stretch of the kept examples, their texts in a row; NaN throughout a text that has none.

    Args:
        run: the run.
        source: the map.
        texts: all texts of the run.
        rows: the places of the kept examples, ascending.
        ids: the ids of all examples.
        spans: the stretches `[first, stop)` of `rows`.

    Raises:
        UserError: the table has a position that its text does not have.
    """
    lengths = (texts.lengths if source.key == INNER else texts.items).astype(np.int64)
    pieces, waiting = records(run, source), Records(*(np.zeros(0, kind) for kind in (np.int64, np.int64, np.float64)))
    for first, stop in spans:
        own = rows[first:stop]
        begin = starts(lengths[own])
        dense, there = np.zeros(int(lengths[own].sum())), np.zeros(len(own), bool)
        while True:
            cut = int(np.searchsorted(waiting.example_id, ids[own[-1]], side="right"))
            _fill(dense, there, begin, own, waiting[slice(0, cut)], ids, lengths, f"{run.directory}: {source.key}")
            waiting = waiting[slice(cut, None)]
            piece = None if len(waiting.value) else next(pieces, None)
            if piece is None:
                break
            waiting = piece
        yield np.where(np.repeat(there, lengths[own]), dense, np.nan)


def _fill(
    dense: Float[np.ndarray, " values"],
    there: np.ndarray,
    begin: Int[np.ndarray, " rows"],
    own: Int[np.ndarray, " rows"],
    given: Records,
    ids: Int[np.ndarray, " examples"],
    lengths: Int[np.ndarray, " examples"],
    where: str,
) -> None:
    """Put the records of a stretch's examples into their places; those of other examples are only looked at."""
    row = np.searchsorted(ids, given.example_id)
    check_positions(given.step, np.append(lengths, 0)[row], where)
    place = np.minimum(np.searchsorted(own, row), len(own) - 1)
    kept = own[place] == row
    dense[begin[place[kept]] + given.step[kept]] = given.value[kept]
    there[place[kept]] = True


def numbers(run: Run, source: Source, column: Column, ids: Int[np.ndarray, " examples"], texts: Texts) -> np.ndarray:
    """A number of every example, NaN where it is undefined."""
    if source.probe is not None:
        rows = run.numbers.rows(source.probe, (column.metric,))
        values = np.full(len(ids), np.nan)
        place = np.searchsorted(ids, rows["example_id"].to_numpy())
        known = (place < len(ids)) & (ids[np.minimum(place, len(ids) - 1)] == rows["example_id"].to_numpy())
        values[place[known]] = rows["value"].to_numpy()[known]
        return 1 - values if column.one_minus else values
    if column.metric == "length":
        return texts.items.astype(np.float64)
    own = {
        "max_attention": ("attention", largest),
        "margin": ("probability", margins),
        "special_mass": ("special_mass", pa.ChunkedArray.to_numpy),
    }
    name, reduce = own[column.metric]
    pieces = RunDirectory(run.directory).example_pieces(run.split, [name])
    return np.concatenate([np.zeros(0), *(reduce(piece[name]) for piece in pieces)])


def margins(probability: pa.ChunkedArray) -> Float[np.ndarray, " examples"]:
    """How far the most probable class is ahead of the next, 0 to 1."""
    ordered = np.sort(np.array(probability.to_pylist(), float), axis=-1)
    return ordered[:, -1] - ordered[:, -2] if len(ordered) else np.zeros(0)


def largest(lists: pa.ChunkedArray) -> Float[np.ndarray, " examples"]:
    """The largest value of each list; NaN for an empty one."""
    lengths, flat = lengths_of(lists), pc.list_flatten(lists).to_numpy().astype(np.float64)
    if len(flat) == 0:
        return np.full(len(lengths), np.nan)
    maximum = np.maximum.reduceat(np.append(flat, -np.inf), np.minimum(starts(lengths), len(flat)))
    return np.where(lengths > 0, maximum, np.nan)
