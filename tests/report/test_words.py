import pandas as pd

from attnprobe.findings.quality import quality
from attnprobe.report.terminal import plain_words

RUN = {"run_id": "run", "experiment": "jain", "data": "sst", "model": "lstm", "seed": 0, "split": "test"}


def table(**metrics):
    """A long table of one run: `probe__metric` → the examples' values."""
    rows = []
    for name, values in metrics.items():
        probe, metric = name.split("__")
        rows += [
            RUN
            | {
                "probe": probe,
                "metric": metric,
                "example_id": number,
                "step": float("nan"),
                "value": value,
            }
            for number, value in enumerate(values)
        ]
    return pd.DataFrame(rows)


def test_known_numbers_give_known_sentences():
    numbers = table(
        permutation__median_tvd=[0.0, 0.01, 0.2, 0.3],
        adversarial__optimum_jsd=[0.5, 0.6, 0.7, 0.1],
        correlation__tau_attention_leave_one_out=[0.1, 0.3, float("nan")],
        erasure__never_flips=[1, 0, 0, 0, 0],
    )
    said = plain_words(numbers, quality([0, 0, 1, 1] * 50, [0, 0, 1, 0] * 50))
    assert said == [
        "The classifier is right on 75 % of 200 test texts; always naming the largest class is right on 50 %. It is "
        "better than guessing.",
        "The order of the weights agrees with what leaving each word out does by τ = 0.20 (1: the same order, 0: unrelated).",
        "For 20 % of the texts no erasure of attention, however large, changes the decision.",
        "Giving the weights to other words at random moves the prediction by more than 0.05, on a scale from 0 to 1, for 50 "
        "% of the texts.",
        "For 75 % of the texts a very different attention gives the same prediction (median distance 0.55 of at most 0.69), "
        "so the weights cannot be presented as the only possible reason there.",
    ]


def test_nothing_is_said_of_what_was_not_tested_and_a_guesser_is_named():
    assert plain_words(table(performance__x=[1.0]), None) == []
    said = plain_words(table(performance__x=[1.0]), quality([0] * 97 + [1] * 3, [0] * 100))
    assert len(said) == 1
    assert said[0].endswith("It is not shown to be better than guessing.")
