"""Exact Shapley values of an attention beside sampled ones: error against time.

    python -m benchmarks.shapley [--lengths 20 400 4000] [--seconds 20] [--seeds 3] [--figure FILE]

The game is v(S) = Σ_{t∈S} α_t m_t / Σ_{t∈S} α_t with weights α = softmax(2 · normal) and payoffs
m = 1 + 3 · normal. Every method is asked with four times as many evaluations of v until it takes
longer than `--seconds`; of three seeds the medians of time and error count. One process, one
thread. The error is Σ|φ̂ − φ| / Σ|φ|. At 20 positions φ comes from all 2^20 sets; at more from the
solver, whose own error there is the one that it proves.

- *orders*: random orders, each walked with two running sums, so that it costs what one evaluation
  costs elsewhere: the best that sampling can do with this game.
- *captum*: `ShapleyValueSampling`, which evaluates v anew at each step of an order.
- *shapiq*: `PermutationSamplingSV`, `KernelSHAP` and `KernelSHAP` with pairs of a set and its
  complement, up to 1,000 positions, as it solves a regression with as many unknowns; left out where
  shapiq is not installed (`pip install shapiq`).
"""

import argparse
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
import torch
from captum.attr import ShapleyValueSampling
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from attnprobe.exact import attention_shapley, shapley_values
from attnprobe.plots.style import CLASS_COLOURS, INK, TEXT_WIDTH, paper_style
from benchmarks.timing import processor

ENUMERATED = 20
"""Up to so many positions, the truth comes from all sets."""
MOST_UNKNOWNS = 1000
"""Positions of a game that KernelSHAP is asked about."""
GROWTH = 4
EXACT = "exact"
Values = Float[np.ndarray, "positions"]


@dataclass(frozen=True)
class Game:
    """An attention and what each position says for a class."""

    weights: Values
    payoffs: Values

    def values(self, sets: Bool[np.ndarray, "sets positions"]) -> Float[np.ndarray, "sets"]:
        """v of each set."""
        kept = sets.astype(float)
        mass = kept @ self.weights
        total = kept @ (self.weights * self.payoffs)
        return np.divide(total, mass, out=np.zeros(len(sets)), where=mass > 0)


@dataclass(frozen=True)
class Point:
    """One method with one number of evaluations.

    Attributes:
        evaluations: of v; None where the method needs none.
        error: Σ|φ̂ − φ| / Σ|φ|.
        proved: the error is a bound, and not measured.
    """

    length: int
    method: str
    evaluations: int | None
    seconds: float
    error: float
    proved: bool = False


def random_game(length: int, seed: int = 0) -> Game:
    """Weights of a peaked softmax, payoffs of either sign."""
    generator = np.random.default_rng([seed, length])
    weights = np.exp(2 * generator.normal(size=length))
    return Game(weights / weights.sum(), 1 + 3 * generator.normal(size=length))


def solved(game: Game) -> tuple[Values, float]:
    """The solver's values, and the proved error of each."""
    payoffs = torch.from_numpy(game.payoffs)
    shapley = attention_shapley(
        torch.from_numpy(game.weights)[None],
        torch.stack([torch.zeros_like(payoffs), payoffs], -1)[None],
        torch.ones(1, len(payoffs), dtype=torch.bool),
    )
    return shapley.values[0, :, 1].numpy(), float(shapley.error[0, 1])


def enumerated(game: Game) -> Values:
    """From the values of all sets."""
    length = len(game.weights)
    masks = np.arange(2**length)
    sets = (masks[:, None] >> np.arange(length)) & 1 == 1
    return shapley_values(torch.from_numpy(game.values(sets))[None])[0].numpy()


def by_orders(game: Game, evaluations: int, seed: int) -> Values:
    """Mean gains over random orders, from running sums."""
    length = len(game.weights)
    orders = max(1, evaluations // length)
    generator = np.random.default_rng(seed)
    gains = np.zeros(length)
    for _ in range(orders):
        order = generator.permutation(length)
        mass = game.weights[order].cumsum()
        gains[order] += np.diff((game.weights * game.payoffs)[order].cumsum() / mass, prepend=0)
    return gains / orders


def by_captum(game: Game, evaluations: int, seed: int) -> Values:
    """captum's `ShapleyValueSampling`."""
    length = len(game.weights)
    torch.manual_seed(seed)
    method = ShapleyValueSampling(lambda sets: torch.from_numpy(game.values(sets.numpy() > 0)))
    values = method.attribute(
        torch.ones(1, length, dtype=torch.float64),
        n_samples=max(1, evaluations // length),
        perturbations_per_eval=min(length, 500),
    )
    return values[0].numpy()


def by_shapiq(name: str, settings: Mapping[str, bool]) -> Callable[[Game, int, int], Values]:
    """One of shapiq's approximators."""
    approximator = getattr(importlib.import_module("shapiq.approximator"), name)

    def values(game: Game, evaluations: int, seed: int) -> Values:
        method = approximator(len(game.weights), random_state=seed, **settings)
        return method.approximate(evaluations, game.values).get_n_order_values(1)

    return values


def samplers() -> dict[str, Callable[[Game, int, int], Values]]:
    """Name → (game, evaluations, seed) → values."""
    methods: dict[str, Callable[[Game, int, int], Values]] = {
        "orders, running sums": by_orders,
        "captum, orders": by_captum,
    }
    if importlib.util.find_spec("shapiq"):
        methods["shapiq, orders"] = by_shapiq("PermutationSamplingSV", {})
        methods["shapiq, KernelSHAP"] = by_shapiq("KernelSHAP", {})
        methods["shapiq, KernelSHAP in pairs"] = by_shapiq("KernelSHAP", {"pairing_trick": True})
    return methods


def measured(length: int, seconds: float, seeds: int) -> Iterator[Point]:
    """All methods at one length, the solver first."""
    game = random_game(length)
    solved(game)  # the first call of a process finds its libraries' code
    times = [timed(partial(solved, game))[1] for _ in range(5)]
    exact, error = solved(game)
    truth = exact
    proved = length > ENUMERATED
    difference = error * length
    if not proved:
        truth = enumerated(game)
        difference = float(np.abs(exact - truth).sum())
    size = float(np.abs(truth).sum())
    yield Point(length, EXACT, None, median(times), difference / size, proved)

    for name, method in samplers().items():
        if "KernelSHAP" in name and length > MOST_UNKNOWNS:
            continue
        evaluations = 2 * length
        spent = 0.0
        while spent < seconds:
            draws = [timed(partial(method, game, evaluations, seed)) for seed in range(seeds)]
            errors = [float(np.abs(values - truth).sum()) / size for values, _ in draws]
            spent = median(duration for _, duration in draws)
            yield Point(length, name, evaluations, spent, median(errors))
            evaluations *= GROWTH


def timed(job: Callable[[], object]) -> tuple[object, float]:
    """What the job returns, and the seconds that it took."""
    start = perf_counter()
    result = job()
    return result, perf_counter() - start


def drawn(points: list[Point]) -> Figure:
    """A panel per length: a line per sampler, and a dot for the solver."""
    lengths = sorted({point.length for point in points})
    names = list(dict.fromkeys(point.method for point in points if point.method != EXACT))
    with paper_style():
        figure = Figure(figsize=(TEXT_WIDTH, 2.5), layout="constrained")
        panels = figure.subplots(1, len(lengths), sharey=True, squeeze=False)[0]
        for axes, length in zip(panels, lengths, strict=True):
            for colour, name in zip(CLASS_COLOURS, names, strict=False):
                line = [p for p in points if p.length == length and p.method == name]
                seconds = [point.seconds for point in line]
                errors = [point.error for point in line]
                axes.plot(seconds, errors, ".-", color=colour, label=name)
            (exact,) = (p for p in points if p.length == length and p.method == EXACT)
            marker = "v" if exact.proved else "D"
            axes.plot(exact.seconds, exact.error, marker, color=INK, label="exact")
            axes.set(xscale="log", yscale="log", title=f"{length:,} positions", xlabel="seconds")
        panels[0].set_ylabel("Σ|φ̂ − φ| / Σ|φ|")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def main() -> None:
    """Measure, print a table, and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lengths", nargs="+", type=int, default=[20, 400, 4000])
    parser.add_argument("--seconds", type=float, default=20, help="the longest call of a sampler")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", type=Path, help="where to save error against time")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    table = Table(title=f"one thread, {processor()}; medians of {arguments.seeds}")
    for column in ("positions", "method", "evaluations", "seconds", "error"):
        table.add_column(column, justify="left" if column == "method" else "right")
    points: list[Point] = []
    for length in arguments.lengths:
        for point in measured(length, arguments.seconds, arguments.seeds):
            points.append(point)
            evaluations = "" if point.evaluations is None else f"{point.evaluations:,}"
            error = f"{'≤ ' if point.proved else ''}{point.error:.2g}"
            row = (f"{length:,}", point.method, evaluations, f"{point.seconds:.3g}", error)
            table.add_row(*row)
            print(*row, sep=", ", flush=True)
    Console(width=100).print(table)
    if arguments.figure:
        drawn(points).savefig(arguments.figure, dpi=150)


if __name__ == "__main__":
    main()
