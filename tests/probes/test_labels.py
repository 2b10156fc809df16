"""Does each label have an attention of its own? Beside plain loops and all subsets."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.exact import shapley_values
from attnprobe.importance.base import Subject
from attnprobe.models.attention import LabelAttention
from attnprobe.models.decoders import LabelDecoder
from attnprobe.models.encoders import LabelVector
from attnprobe.probes.labels import Labels
from attnprobe.probes.swaps import Swaps
from tests.toys import VOCABULARY, toy_classifier, toy_readout

LENGTHS = [5, 3, 1, 6]
ASKED = [3, 2, 1, 4]
"""Labels that each text is asked for."""


def split_of(*, same_label=False):
    """Texts that are asked for so many labels each; on request always for the same vector."""
    generator = np.random.default_rng(0)
    texts = [generator.integers(4, VOCABULARY, length) for length in LENGTHS]
    number = np.repeat(np.arange(len(texts)), ASKED)
    names = [4 if same_label else 4 + label for asked in ASKED for label in range(asked)]
    return TextSplit(
        example_id=np.arange(len(number)),
        words=Ragged.of([texts[text] for text in number], np.int32),
        vocabulary_id=np.arange(VOCABULARY),
        columns={
            "labels": np.arange(len(number)) % 2,
            "question": Ragged.of([np.array([name]) for name in names], np.int32),
            "text_number": number,
        },
    )


def model(attention=LabelAttention, seed=0):
    return toy_classifier(
        "lstm",
        attention,
        decoder=LabelDecoder,
        question=True,
        question_encoder=LabelVector,
        spread=3,
        seed=seed,
    )


def measured(classifier, split, rows=None, **settings):
    """What the probe yields of some rows by metric, and their readout."""
    batch = split[list(range(len(split))) if rows is None else rows]
    outputs, readout = toy_readout(classifier, batch)
    probe = Labels(**settings)
    probe.prepare({"test": split})
    subject = Subject(classifier, batch, outputs, readout)
    results = {result.metric: result for result in probe.examine(subject, Draws(0, "labels"))}
    return results, readout


def test_of_many_other_labels_a_few_are_drawn_for_each_row_by_itself():
    """The text that is asked for four has three others; two of them are the most that is read."""
    split = split_of()
    classifier = model()
    whole, _ = measured(classifier, split)
    every, _ = measured(classifier, split, others=3)
    few, _ = measured(classifier, split, others=2)
    alone, _ = measured(classifier, split, rows=[7], others=2)
    name = "other_label_jsd"
    assert torch.equal(whole[name].value.nan_to_num(), every[name].value.nan_to_num())
    # texts of three labels or fewer have no more than two others
    assert torch.equal(few[name].value[:6].nan_to_num(), whole[name].value[:6].nan_to_num())
    assert alone[name].value[0] == pytest.approx(few[name].value[7])
    pairs = pairs_of_the_last_text(classifier, split)
    for row in range(4):
        means = [sum(pair) / 2 for pair in itertools.combinations(pairs[row], 2)]
        assert min(abs(float(few[name].value[6 + row]) - mean) for mean in means) < 1e-9


def pairs_of_the_last_text(classifier, split):
    """The JSD of each of its labels' attentions with those of the other three, by scipy."""
    outputs, _ = toy_readout(classifier, split[[6, 7, 8, 9]])
    attention = outputs.attention.numpy()
    return [
        [jensenshannon(attention[row], attention[other]) ** 2 for other in range(4) if other != row]
        for row in range(4)
    ]


def test_other_labels_are_those_of_the_same_text_one_pair_at_a_time():
    split = split_of()
    results, readout = measured(model(), split)
    for row, text in enumerate(split.text_number):
        others = [
            other
            for other in range(len(split))
            if split.text_number[other] == text and other != row
        ]
        if not others:
            assert results["other_label_jsd"].value[row].isnan()
            assert results["other_label_tvd"].value[row].isnan()
            continue
        own = readout.attention[row]
        divergences, distances = [], []
        for other in others:
            attention = readout.attention[other]
            divergences.append(jensenshannon(own.numpy(), attention.numpy()) ** 2)
            answer = (attention @ readout.position_logits[row]).softmax(-1)
            distances.append(float((answer - readout.prediction()[row]).abs().sum() / 2))
        assert results["other_label_jsd"].value[row].item() == pytest.approx(np.mean(divergences))
        assert results["other_label_tvd"].value[row].item() == pytest.approx(np.mean(distances))


def test_labels_that_attend_alike_are_found_out():
    results, _ = measured(model(), split_of(same_label=True))
    asked_for_several = torch.tensor([number > 1 for number in np.repeat(ASKED, ASKED)])
    for metric in ("other_label_jsd", "other_label_tvd"):
        values = results[metric].value
        assert values[asked_for_several].abs().max() < 1e-12
        assert values[~asked_for_several].isnan().all()


def test_what_a_row_is_compared_with_does_not_depend_on_its_batch():
    split = split_of()
    classifier = model()
    together, _ = measured(classifier, split)
    for rows in ([1], [9, 0], [5, 4, 7]):
        apart, _ = measured(classifier, split, rows)
        for metric in ("other_label_jsd", "other_label_tvd", "against_mass", "yes_to_no"):
            assert_close(apart[metric].value, together[metric].value[rows], equal_nan=True)


def smallest(weights, margins):
    """The fewest words whose erasure turns the sign of the mean margin, of all subsets."""
    says_yes = weights @ margins > 0
    for size in range(1, len(weights)):
        for erased in itertools.combinations(range(len(weights)), size):
            kept = [word for word in range(len(weights)) if word not in erased]
            if (weights[kept] @ margins[kept] > 0) != says_yes:
                return size
    return None


def in_small_cases():
    """What the probe yields of a row, the row, its weights, and what each word says for a yes."""
    for seed in range(4):
        split = split_of()
        attention = partial(LabelAttention, inner_size=5)
        results, readout = measured(model(attention, seed), split)
        margin = readout.position_logits[..., 1] - readout.position_logits[..., 0]
        for row in range(len(split)):
            content = readout.content[row]
            bias = float(readout.unattended[row, 1] - readout.unattended[row, 0])
            weights = readout.attention[row, content].numpy()
            yield results, row, weights, margin[row, content].numpy(), bias


def test_the_smallest_set_is_that_of_all_subsets_in_both_directions():
    turned = set()
    for results, row, weights, margins, _ in in_small_cases():
        says_yes = bool(weights @ margins > 0)
        own, other = ("yes_to_no", "no_to_yes") if says_yes else ("no_to_yes", "yes_to_no")
        size = smallest(weights, margins)
        assert bool(results["says_yes"].value[row]) is says_yes
        assert results[other].value[row].isnan()
        assert bool(results["never_turns"].value[row]) is (size is None)
        if size is None:
            assert results[own].value[row].isnan()
        else:
            assert int(results[own].value[row]) == size
            turned.add(own)
    assert turned == {"yes_to_no", "no_to_yes"}


def test_what_a_word_says_for_a_label_or_against_it_is_its_shapley_value_by_all_subsets():
    signs = set()
    for results, row, weights, margins, bias in in_small_cases():
        payoffs = margins - bias
        against = results["against_mass"].value[row].item()
        assert against == pytest.approx(weights[payoffs < 0].sum())
        subsets = np.arange(2 ** len(weights))[:, None] >> np.arange(len(weights)) & 1
        kept = subsets * weights
        game = (kept @ payoffs) / np.maximum(kept.sum(-1), 1e-300)
        values = shapley_values(torch.tensor(game)[None])[0]
        step = results["label_value"].step[row]
        measured_values = results["label_value"].value[row, ~step.isnan()]
        assert_close(measured_values, values)
        signs |= set(values.sign().tolist())
    assert signs >= {-1.0, 1.0}


def test_data_without_labels_are_refused():
    split = split_of()
    columns = {name: column for name, column in split.columns.items() if name != "text_number"}
    plain = TextSplit(split.example_id, split.words, split.vocabulary_id, columns)
    with pytest.raises(UserError, match=r"probe labels .*leave it out of probe=.*task=labels"):
        Labels().prepare({"test": plain})


def test_swaps_examine_texts_with_all_their_labels():
    """Every second row would be every second label."""
    probe = Swaps(texts=20)
    number = np.repeat(np.arange(40), 4)
    split = TextSplit(
        example_id=np.arange(160),
        words=Ragged.of([np.array([4, 5, 6])] * 160, np.int32),
        vocabulary_id=np.arange(VOCABULARY),
        columns={"labels": number % 2, "text_number": number},
    )
    probe.prepare({"test": split})
    examined = np.flatnonzero(probe._is_examined)
    assert len(examined) == 20
    texts, counts = np.unique(number[examined], return_counts=True)
    assert len(texts) == 5
    assert set(counts) == {4}


def test_a_text_is_read_once_for_all_its_labels_though_its_rows_come_in_several_batches():
    split = split_of()
    classifier = model().double()
    whole, _ = measured(classifier, split)
    probe = Labels()
    probe.prepare({"test": split})
    read = []
    classifier.encoder.register_forward_pre_hook(
        lambda _, arguments: read.append(len(arguments[0]))
    )
    values = []
    for rows in ([0, 1], [2], [3, 4, 5, 6, 7], [8, 9]):
        batch = split[rows]
        outputs, readout = toy_readout(classifier, batch)
        read.clear()
        subject = Subject(classifier, batch, outputs, readout)
        results = list(probe.examine(subject, Draws(0, "labels")))
        values += [r.value for r in results if getattr(r, "metric", "") == "other_label_jsd"]
        # the texts that this batch is the first to ask for
        assert sum(read) == {0: 1, 2: 0, 3: 3, 8: 0}[rows[0]]
    assert_close(torch.cat(values), whole["other_label_jsd"].value, equal_nan=True)
