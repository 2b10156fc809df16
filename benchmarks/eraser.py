"""The formulas of ERASER's `rationale_benchmark/metrics.py` (DeYoung et al. 2020) for one text, as
plain loops over lists."""

from collections.abc import Sequence

from sklearn.metrics import auc, precision_recall_curve


def their_token_f1(chosen: Sequence[bool], truth: Sequence[bool]) -> float:
    """`score_hard_rationale_predictions`, F1 of one text: sets of tokens."""
    ours = {place for place, one in enumerate(chosen) if one}
    theirs = {place for place, one in enumerate(truth) if one}
    precision = len(ours & theirs) / len(ours) if ours else 0
    recall = len(ours & theirs) / len(theirs) if theirs else 0
    return 0 if precision == 0 or recall == 0 else 2 * precision * recall / (precision + recall)


def their_spans(mask: Sequence[bool]) -> list[range]:
    """Runs of True."""
    found = []
    start = None
    for place, one in enumerate([*mask, False]):
        if one and start is None:
            start = place
        if not one and start is not None:
            found.append(range(start, place))
            start = None
    return found


def their_partial_match(chosen: Sequence[bool], truth: Sequence[bool]) -> tuple[float, float]:
    """`partial_match_score` at 0.5, precision and recall of one text."""
    ours = their_spans(chosen)
    theirs = their_spans(truth)
    hits = 0
    for one in ours:
        best = max(
            (len(set(one) & set(other)) / len(set(one) | set(other)) for other in theirs),
            default=0.0,
        )
        hits += int(best >= 0.5)
    return (hits / len(ours) if ours else 0), (hits / len(theirs) if theirs else 0)


def their_auprc(truth: Sequence[bool], scores: Sequence[float]) -> float:
    """`_auprc` of one text: the area by trapezoids."""
    precision, recall, _ = precision_recall_curve([int(one) for one in truth], scores)
    return float(auc(recall, precision))
