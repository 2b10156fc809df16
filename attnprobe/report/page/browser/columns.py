"""What the browser shows of an example: its heat maps and its numbers, and where each is read."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Map:
    """Weights over a text's positions. `source` is their (probe, metric); None: in the examples' table, under `key`.

    `relative`: shaded relative to the text's largest value, for numbers that do not share out a whole.
    """

    key: str
    title: str
    about: str
    source: tuple[str, str] | None = None
    relative: bool = False


MAPS = (
    Map("attention", "Attention", "the model's own; the weights of a text sum to 1"),
    Map(
        "found", "Adversary, found by search", "gradient search for a distant attention with the same prediction",
        ("adversarial", "found_attention"),
    ),
    Map(
        "farthest", "Farthest attention", "the most distant attention known with the same prediction",
        ("adversarial", "optimum_attention"),
    ),
    Map("gradient", "Gradient", "share of the gradient, attention held fixed; sums to 1", ("gradient", "gradient")),
    Map(
        "leave_one_out", "Leave-one-out", "TVD of the prediction without this position; shaded relative to the largest",
        ("leave_one_out", "leave_one_out"), relative=True,
    ),
    Map(
        "effect", "Effect of erasing one weight", "JSD of the prediction, in nats; shaded relative to the largest",
        ("single_weight", "effect_js"), relative=True,
    ),
    Map("flips", "Flips alone", "1 where erasing this weight alone flips the decision", ("single_weight", "effect_flip")),
    Map("smallest", "Smallest flipping set", "1 where the position belongs to it", ("erasure", "smallest_set")),
    Map("word_attention", "Attention to words", "within each sentence; sums to 1 there"),
)  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """A number of each example that the list can be sorted by (`sorts`), or that only stands beside the text.

    `probe` None: of the examples' table. `one_minus`: the number shown is 1 − the metric, large for disagreement.
    `digits` after the point.
    """

    key: str
    title: str
    probe: str | None = None
    metric: str = ""
    digits: int = 3
    one_minus: bool = False
    sorts: bool = True


MEASURES = (
    Measure("farthest_jsd", "JSD of the farthest attention", "adversarial", "optimum_jsd"),
    Measure("found_jsd", "JSD of the found adversary", "adversarial", "found_jsd"),
    Measure("flip_size", "smallest flipping set, positions", "erasure", "removed_count_optimal", 0),
    Measure("flip_attention", "erased until the flip, by attention", "erasure", "removed_count_attention", 0),
    Measure("against_gradient", "disagreement with the gradient, 1 − τ", "correlation", "tau_attention_gradient",
            one_minus=True),
    Measure("against_leave_one_out", "disagreement with leave-one-out, 1 − τ", "correlation",
            "tau_attention_leave_one_out", one_minus=True),
    Measure("median_tvd", "median TVD under permutation", "permutation", "median_tvd"),
    Measure("delta_js", "ΔJS, most attended − random", "single_weight", "delta_js_attention"),
    Measure("max_attention", "largest attention weight"),
    Measure("margin", "margin of the prediction"),
    Measure("length", "positions", digits=0),
    Measure("upper_bound", "upper bound of the JSD", "adversarial", "upper_bound", sorts=False),
    Measure("is_exact", "farthest attention is exact", "adversarial", "is_exact", 0, sorts=False),
    Measure("found_tvd", "TVD of the found adversary", "adversarial", "found_tvd", 4, sorts=False),
    Measure("farthest_tvd", "TVD of the farthest attention", "adversarial", "optimum_tvd", 4, sorts=False),
    Measure("never_flips", "no set flips it (proved, up to rounding)", "erasure", "never_flips", 0, sorts=False),
    Measure("top_in_rationale", "most attended is in the rationale", "plausibility", "top_in_rationale_attention", 0,
            sorts=False),
)  # fmt: skip
