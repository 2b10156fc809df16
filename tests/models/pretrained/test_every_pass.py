"""In no pass of any test has a place that its row cannot see a weight above 0."""

import pytest
import torch

from attnprobe.models.pretrained import model as pretrained
from attnprobe.models.pretrained.attention_hooks import Pass
from attnprobe.probes.__main__ import probes
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.models.pretrained.families import run_settings
from tests.models.pretrained.test_unseen import LONG, windowed
from tests.small_runs import SMALL_ADVERSARY, composed

pytest.importorskip("transformers")
WINDOW = 4
"""Places that a row of the last layer sees on either side."""
FIRST = 3
"""Rows that are watched, the pooled one among them: those of padding, further on, see nothing."""
NEED_MORE = {"teacher", "novelty", "known_answer", "plausibility", "sanity", "labels"}
"""Tests that need another run, other splits or a rationale, or have networks of their own."""
FEW = {"permutation", "adversarial", "erasure", "single_weight"}
ALL = set(probes()) - NEED_MORE
SMALL = (
    *SMALL_ADVERSARY,
    "importances=[attention,gradient]",
    "probe.permutation.samples=5",
    "probe.skill.samples=5",
    "probe.agreement.samples=2",
    "probe.agreement.share=1.0",
    "probe.soft_erasure.samples=2",
    "probe.sites.samples=2",
    "probe.near_ties.samples=2",
    "probe.swaps.passes=100",
    "probe.swaps.most_passes=100",
)


class Watch:
    """What replaced attentions of the last layer give to places outside the window.

    Attributes:
        rows: how many replaced rows were seen.
        forbidden: the most that one of them has outside.
    """

    def __init__(self):
        self.rows = 0
        self.forbidden = 0.0

    def see(self, weights, is_outside):
        self.rows += weights[..., 0].numel()
        self.forbidden = max(self.forbidden, float((weights.detach() * is_outside).max()))

    def of_pass(self, put):
        """`Pass.weights`, watched: whole passes."""

        def weights(attention_pass, recorded, *arguments, **named):
            is_last = len(attention_pass.shapes) == 1
            used = put(attention_pass, recorded, *arguments, **named)
            if is_last and used is not recorded:
                place = torch.arange(used.shape[-1])
                is_outside = (place[:FIRST, None] - place).abs() > WINDOW
                self.see(used[..., :FIRST, :], is_outside)
            return used

        return weights

    def of_row(self, check):
        """`check_places`, watched: the first piece's row alone, on the short way."""

        def check_places(rows, visible):
            self.see(rows, torch.arange(rows.shape[-1]) > WINDOW)
            return check(rows, visible)

        return check_places


def is_about(setting, names):
    """Whether a setting is one of these probes, or of all."""
    place, *parts = setting.split(".")
    return place != "probe" or parts[0] in names


@pytest.mark.parametrize(
    ("short_way", "names"),
    [(True, FEW), (False, FEW), pytest.param(True, ALL, marks=pytest.mark.slow)],
    ids=["short", "whole", "every test"],
)
def test_no_test_gives_weight_to_a_forbidden_place(tmp_path, monkeypatch, short_way, names):
    windowed(tmp_path / "model", "ModernBert")
    settings = run_settings(
        tmp_path / "model",
        LONG[:3],
        tmp_path,
        f"probe=[{','.join(names)}]",
        f"model.short_way={short_way}",
        *(setting for setting in SMALL if is_about(setting, names)),
    )
    config = composed(*settings)
    watch = Watch()
    monkeypatch.setattr(Pass, "weights", watch.of_pass(Pass.weights))
    monkeypatch.setattr(pretrained, "check_places", watch.of_row(pretrained.check_places))
    directory = run(config)
    assert watch.forbidden == 0
    assert watch.rows > 500
    # each of them wrote numbers
    assert set(names) - set(read_results(directory)["probe"]) <= {"subsets", "words", "readouts"}
