"""How well the classifier itself does, as context of every other number."""

from attnprobe.evidence.reading import Headline, Reading

READING = Reading(
    probe="performance",
    order=0,
    title="How well the classifier does",
    about=(
        "Accuracy (where a text may have several labels: the share of texts with all of them right, and the share of single "
        "labels that are), macro F1 and area under the ROC curve on the test split, each from 0 to 1 and best at 1. They say "
        "nothing about attention; they are the context of every other number here. The attention of a classifier that "
        "has learnt little explains little, and two models compare only where they do about equally well."
    ),
    headlines=(
        Headline("accuracy", "accuracy", published="accuracy", proportion_of="examples"),
        Headline("exact_match", "exact match: all labels of a text right", proportion_of="examples"),
        # no interval: the decisions on one text's labels belong together, and the table has no number per text
        Headline("label_accuracy", "accuracy per label"),
        Headline("f1_macro", "macro F1", published="f1_macro"),
        Headline("roc_auc", "area under the ROC curve", published="roc_auc"),
    ),
)
