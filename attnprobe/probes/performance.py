"""How well the classifier itself does, as context of every other number."""

from attnprobe.readings.reading import Headline, Reading

READING = Reading(
    probe="performance",
    order=0,
    title="How well the classifier does",
    about=(
        "Accuracy: the share of texts that the model gets right (of several labels: all of them). "
        "Macro F1 and the area under the ROC curve are 1 at best too. They say nothing about "
        "attention. But where a model has learnt little, its attention explains little. And two "
        "models compare only where they do about equally well."
    ),
    headlines=(
        Headline("accuracy", "accuracy", published="accuracy", proportion_of="examples"),
        Headline(
            "exact_match", "exact match: all labels of a text right", proportion_of="examples"
        ),
        # no interval: the decisions on one text's labels belong together, and the table has no
        # number per text
        Headline("label_accuracy", "accuracy per label"),
        Headline("f1_macro", "macro F1", published="f1_macro"),
        Headline("label_f1_macro", "macro F1 over labels"),
        Headline("label_f1_micro", "micro F1 over labels"),
        Headline("precision_at_5", "precision of a text's 5 likeliest labels"),
        Headline("r_precision", "R-precision of a text's labels"),
        Headline("roc_auc", "area under the ROC curve", published="roc_auc"),
    ),
)
