"""What a page says of each label, where rows are texts and labels."""

from attnprobe.core.sanitise import percent, percent_ends
from attnprobe.evidence.deciding_words import SHARE_METRICS, ShareOfClass, labels_in
from attnprobe.findings.groups import Run
from attnprobe.results.pivot import ASKED, ASKED_LABELS


def labels_asked_for(run: Run) -> list[str]:
    """The labels that test rows ask for, by name; none where rows ask for no labels."""
    of_runs = run.numbers.attrs.get(ASKED_LABELS, {}).values()
    return sorted({label for labels in of_runs for label in labels.values()})


def texts_asked_for_labels(run: Run) -> int | None:
    """How many texts are asked for labels; None where rows ask for none."""
    asked = run.numbers.attrs.get(ASKED_LABELS, {})
    if not asked:
        return None
    further_rows = run.numbers.attrs.get(ASKED, {})
    return sum(len(labels) - len(further_rows.get(run_id, {})) for run_id, labels in asked.items())


def answers_of_labels(run: Run) -> dict[str, str] | None:
    """Whether each label's attention is on the words that decide it, in a sentence by its name.

    Returns:
        An empty mapping where that was not tested (`probe=[swaps]`); None where rows ask for no
        labels.
    """
    if not run.numbers.attrs.get(ASKED_LABELS):
        return None
    if "swaps" not in run.numbers.probes:
        return {}
    labels = labels_in(run.numbers.rows("swaps", SHARE_METRICS))
    return {label.label: _sentence(label.part) for label in labels}


def _sentence(part: ShareOfClass) -> str:
    if not part.has_words:
        return f"{part.answer}, so that the attention has nothing to point at."
    if not part.is_asked:
        return f"{part.answer} of it to say whether attention is on the words that decide."
    share = part.share
    on_words = "of the weight beyond chance is on words that move the prediction"
    value = percent(share.value).replace("-", "−")
    interval = percent_ends(share.low, share.high).replace("-", "−")
    answer = {"yes": "attention is on the words that decide", "no": "attention is elsewhere"}
    decision = answer.get(part.answer, "open whether attention is on the words that decide")
    return f"{decision}: {value} {on_words} {interval}."
