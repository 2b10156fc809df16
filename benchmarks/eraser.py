"""The formulas of ERASER's `rationale_benchmark/metrics.py` for one text.

DeYoung et al. 2020, as plain loops over lists.
"""

from collections.abc import Sequence

from sklearn.metrics import auc, precision_recall_curve


def their_token_f1(chosen: Sequence[bool], truth: Sequence[bool]) -> float:
    """`score_hard_rationale_predictions`, F1 of one text: sets of tokens."""
    ours = {place for place, mark in enumerate(chosen) if mark}
    theirs = {place for place, mark in enumerate(truth) if mark}
    precision = len(ours & theirs) / len(ours) if ours else 0
    recall = len(ours & theirs) / len(theirs) if theirs else 0
    return 0 if precision == 0 or recall == 0 else 2 * precision * recall / (precision + recall)


def their_spans(mask: Sequence[bool]) -> list[range]:
    """Runs of True."""
    spans = []
    start = None
    for place, mark in enumerate([*mask, False]):
        if mark and start is None:
            start = place
        if not mark and start is not None:
            spans.append(range(start, place))
            start = None
    return spans


def their_partial_match(chosen: Sequence[bool], truth: Sequence[bool]) -> tuple[float, float]:
    """`partial_match_score` at 0.5, precision and recall of one text."""
    ours = their_spans(chosen)
    theirs = their_spans(truth)
    hits = 0
    for span in ours:
        best = 0.0
        for target in theirs:
            best = max(best, len(set(span) & set(target)) / len(set(span) | set(target)))
        hits += int(best >= 0.5)
    return (hits / len(ours) if ours else 0), (hits / len(theirs) if theirs else 0)


def their_auprc(truth: Sequence[bool], scores: Sequence[float]) -> float:
    """`_auprc` of one text: the area by trapezoids."""
    precision, recall, _ = precision_recall_curve([int(mark) for mark in truth], scores)
    return float(auc(recall, precision))
