"""How well the classifier itself does, as context of every other number."""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="performance",
    order=0,
    headlines=(
        Headline("accuracy", "accuracy", published="accuracy", proportion_of="examples"),
        Headline("f1_macro", "macro F1", published="f1_macro"),
        Headline("roc_auc", "area under the ROC curve", published="roc_auc"),
    ),
)
