"""How well the classifier itself does, as context of every other number."""

from attnprobe.report.reading import Headline, Reading

READING = Reading(
    probe="performance",
    order=0,
    title="How well the classifier does",
    about=(
        "Accuracy, macro F1 and area under the ROC curve on the test split, each from 0 to 1 and best at 1. They say "
        "nothing about attention; they are the context of every other number here. The attention of a classifier that "
        "has learnt little explains little, and two models compare only where they do about equally well."
    ),
    headlines=(
        Headline("accuracy", "accuracy", published="accuracy", proportion_of="examples"),
        Headline("f1_macro", "macro F1", published="f1_macro"),
        Headline("roc_auc", "area under the ROC curve", published="roc_auc"),
    ),
)
