import pandas as pd

from attnprobe.findings.changes import changed_examples


def examples(labels, predictions):
    """A run's texts, with one word that has all of the attention."""
    numbers = range(len(labels))
    return pd.DataFrame(
        {
            "example_id": numbers,
            "words": [f"word{number}" for number in numbers],
            "label": labels,
            "prediction": predictions,
            "attention": [[1.0] for _ in numbers],
        }
    )


def test_a_label_that_the_second_file_has_otherwise_is_shown_twice():
    table = changed_examples(examples([0, 1], [0, 1]), examples([0, 0], [0, 1]), ("no", "yes"))
    assert table["label"].tolist() == ["no", "yes, in B no"]
    assert table["first"].tolist() == table["second"].tolist() == ["no", "yes"]
