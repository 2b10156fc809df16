"""Each order of removing attention between the worst and the best of all, certified at any length."""

import pandas as pd

from attnprobe.report.importances import means_by_importance
from attnprobe.report.reading import Headline, Reading, Tabulation

PROBE = "order_limits"
MARK = "place_low_"
KINDS = {"aopc": "AOPC", "place_low": "place, at least", "place_high": "place, at most"}


def of_importance(name: str, words: str) -> tuple[Headline, ...]:
    """The numbers of one importance."""
    return (
        Headline(f"aopc_{name}", f"AOPC: {words}"),
        Headline(f"place_low_{name}", "  its place between worst (0) and best (1), at least"),
        Headline(f"place_high_{name}", "  at most"),
    )


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Every importance's AOPC and its place, per data set and model, with intervals."""
    return means_by_importance(results, PROBE, MARK, KINDS)


READING = Reading(
    probe=PROBE,
    title="Limits of all orders: how good is each order of removal, at any length?",
    about=(
        "Positions are removed from the attention one by one in each importance's order, the rest is renormalised, and the "
        "mean fall of the decision's probability (AOPC) is placed between the worst (0) and the best (1) that any order can "
        "reach. No order passes the certified limits; orders that were found show how near to them one can come. The place "
        "is known up to the gap between the two, and exactly where there is none. No claim is made of attention's own place: "
        "its largest weights have made the decision, so that removing them first comes near to the best order whether they "
        "mean something or not."
    ),
    order=65,
    of_importance=of_importance,
    mark=MARK,
    headlines=(
        Headline("aopc_lowest", "no order is below this AOPC"),
        Headline("aopc_lowest_found", "  the worst order found"),
        Headline("aopc_highest_found", "  the best order found"),
        Headline("aopc_highest", "no order is above this AOPC"),
        Headline("limits_reached", "texts in which both limits are reached"),
    ),
    tables=(
        Tabulation(
            "order_limits",
            "Each importance's AOPC over n texts, attention removed and renormalised, and its place between the worst (0) "
            "and the best (1) of all orders: certainly no lower and no higher than this. Means with 95 % bootstrap "
            "intervals.",
            rows,
        ),
    ),
)
