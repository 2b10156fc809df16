from dataclasses import dataclass

import pytest
import torch
from sklearn import metrics
from torch import Tensor

from attnprobe.core.batch import Batch, Task
from attnprobe.models.performance import Performance

LABELS = 7


def rows(labels, **columns):
    """A batch with these labels; its words do not matter."""
    ids = torch.ones(len(labels), 1, dtype=torch.long)
    is_word = torch.ones_like(ids, dtype=torch.bool)
    return Batch(
        ids,
        mask=is_word,
        content=is_word,
        labels=labels,
        example_id=torch.arange(len(labels)),
        **columns,
    )


@dataclass(frozen=True)
class Scored:
    """Probabilities of 200 texts, their labels, and the metrics of all batches of three."""

    classes: int
    probability: Tensor
    labels: Tensor
    metrics: dict[str, Tensor]

    @property
    def scores(self):
        """As scikit-learn asks for them: of two classes those of the second one."""
        return self.probability[:, 1] if self.classes == 2 else self.probability


@pytest.fixture(scope="module", params=[2, 4])
def scored(request):
    classes = request.param
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200, classes, generator=generator).softmax(-1)
    labels = torch.randint(0, classes, (200,), generator=generator)
    performance = Performance(Task.SINGLE_LABEL, classes)
    for start in range(0, 200, 3):
        part = slice(start, start + 3)
        performance.update(probability[part], rows(labels[part]))
    return Scored(classes, probability, labels, performance.compute())


def test_accuracy_and_f1_are_scikit_learns_whatever_the_batches(scored):
    decision = scored.probability.argmax(-1)
    accuracy = metrics.accuracy_score(scored.labels, decision)
    f1 = metrics.f1_score(scored.labels, decision, average=None)
    assert scored.metrics["accuracy"].item() == pytest.approx(accuracy)
    assert scored.metrics["f1"].tolist() == pytest.approx(f1.tolist())
    assert scored.metrics["f1_macro"].item() == pytest.approx(f1.mean())


def test_the_area_under_the_roc_curve_is_scikit_learns(scored):
    area = metrics.roc_auc_score(scored.labels, scored.scores, multi_class="ovr")
    assert scored.metrics["roc_auc"].item() == pytest.approx(area, abs=1e-6)


def test_the_average_precision_is_scikit_learns(scored):
    targets = scored.labels
    if scored.classes > 2:
        targets = torch.nn.functional.one_hot(targets)
    precision = metrics.average_precision_score(targets, scored.scores)
    assert scored.metrics["pr_auc"].item() == pytest.approx(precision, abs=1e-6)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.filterwarnings("error")
def test_texts_of_one_class_have_no_area_under_the_roc_curve(classes, label):
    """No text of another class is there to be ranked below them."""
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(50, classes, generator=generator).softmax(-1)
    performance = Performance(Task.SINGLE_LABEL, classes)
    performance.update(probability, rows(torch.full((50,), label)))

    result = performance.compute()

    only_the_other_class = classes == 2 and label == 0
    assert result["roc_auc"].isnan()
    assert result["pr_auc"].isnan() == only_the_other_class


@pytest.mark.filterwarnings("error")
def test_areas_are_the_means_of_the_classes_that_some_text_has():
    """Four classes, the last of which no text has."""
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(60, 4, generator=generator).softmax(-1)
    labels = torch.arange(60) % 3
    performance = Performance(Task.SINGLE_LABEL, 4)
    performance.update(probability, rows(labels))

    result = performance.compute()

    areas = []
    precisions = []
    for number in range(3):
        is_class = labels == number
        areas.append(metrics.roc_auc_score(is_class, probability[:, number]))
        precisions.append(metrics.average_precision_score(is_class, probability[:, number]))
    assert result["roc_auc"].item() == pytest.approx(sum(areas) / 3, abs=1e-6)
    assert result["pr_auc"].item() == pytest.approx(sum(precisions) / 3, abs=1e-6)


def test_a_class_that_no_text_has_and_none_is_given_has_no_f1():
    """The mean is that of the others, as scikit-learn's is."""
    labels = torch.tensor([0, 0, 1, 1, 1])
    decision = torch.tensor([0, 1, 1, 1, 3])
    performance = Performance(Task.SINGLE_LABEL, 4)
    performance.update(torch.eye(4)[decision], rows(labels))

    result = performance.compute()

    macro = metrics.f1_score(labels, decision, average="macro")
    assert result["f1"].isnan().tolist() == [False, False, True, False]
    assert result["f1_macro"].item() == pytest.approx(macro)


def test_metrics_of_several_labels_are_scikit_learns():
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(100, 3, generator=generator)
    labels = torch.randint(0, 2, (100, 3), generator=generator).float()
    performance = Performance(Task.MULTI_LABEL, 3)
    performance.update(probability, rows(labels))

    result = performance.compute()

    decision = probability > 0.5
    label_accuracy = (decision == labels).float().mean().item()
    exact_match = metrics.accuracy_score(labels, decision)
    f1 = metrics.f1_score(labels, decision, average=None)
    assert "accuracy" not in result
    assert result["label_accuracy"].item() == pytest.approx(label_accuracy)
    assert result["exact_match"].item() == pytest.approx(exact_match)
    assert result["f1"].tolist() == pytest.approx(f1.tolist())


@dataclass(frozen=True)
class Asked:
    """Rows that ask texts for a label each.

    Attributes:
        text: the text's number.
        label: the label's.
        answer: 1 if the text has the label, else 0.
        probability: of a yes.
    """

    text: Tensor
    label: Tensor
    answer: Tensor
    probability: Tensor

    def __len__(self):
        return len(self.text)

    @property
    def decision(self):
        return self.probability > 0.5

    def rows(self, chosen):
        """Some of the rows."""
        return Asked(
            text=self.text[chosen],
            label=self.label[chosen],
            answer=self.answer[chosen],
            probability=self.probability[chosen],
        )

    def update(self, performance):
        """As one batch."""
        probabilities = torch.stack([1 - self.probability, self.probability], 1)
        start = torch.full_like(self.label, 2)
        end = torch.full_like(self.label, 3)
        question = torch.stack([start, 4 + self.label, end], 1)
        batch = rows(self.answer, question=question, text_number=self.text)
        performance.update(probabilities, batch)


@pytest.fixture
def asked():
    """Texts that are asked for most of the labels, the last of which none of them has."""
    generator = torch.Generator().manual_seed(0)
    shape = (40, LABELS)
    text, label = torch.meshgrid(*map(torch.arange, shape), indexing="ij")
    is_asked = torch.rand(shape, generator=generator) < 0.9
    answer = (torch.rand(shape, generator=generator) < 0.3).long()
    answer[:, -1] = 0
    probability = torch.rand(shape, generator=generator)
    return Asked(text, label, answer, probability).rows(is_asked)


@pytest.fixture
def metrics_of_asked(asked):
    """Of all rows in batches of five, which cut texts."""
    performance = Performance(Task.SINGLE_LABEL, 2)
    for start in range(0, len(asked), 5):
        asked.rows(slice(start, start + 5)).update(performance)
    return performance.compute()


def test_f1_of_asked_labels_is_that_of_a_loop_over_labels(asked, metrics_of_asked):
    """The mean of all labels but the last, which no text has, and that of all decisions."""
    f1 = []
    for number in range(LABELS - 1):
        of_label = asked.rows(asked.label == number)
        f1.append(metrics.f1_score(of_label.answer, of_label.decision))
    micro = metrics.f1_score(asked.answer, asked.decision)
    assert metrics_of_asked["label_f1_macro"].item() == pytest.approx(sum(f1) / len(f1))
    assert metrics_of_asked["label_f1_micro"].item() == pytest.approx(micro)


def test_precision_of_asked_labels_is_that_of_a_loop_over_texts(asked, metrics_of_asked):
    """Of a text's five likeliest labels, and of as many as it has; the mean of the texts."""
    precision = []
    r_precision = []
    for number in asked.text.unique():
        of_text = asked.rows(asked.text == number)
        order = of_text.probability.argsort(descending=True)
        ranked = of_text.answer[order].tolist()
        precision.append(sum(ranked[:5]) / 5)
        present = sum(ranked)
        if present:
            r_precision.append(sum(ranked[:present]) / present)
    assert len(r_precision) < len(precision)  # some text has no label
    mean_precision = sum(precision) / len(precision)
    mean_r_precision = sum(r_precision) / len(r_precision)
    assert metrics_of_asked["precision_at_5"].item() == pytest.approx(mean_precision)
    assert metrics_of_asked["r_precision"].item() == pytest.approx(mean_r_precision)


def test_rows_that_ask_for_no_label_have_no_such_metrics_and_the_next_pass_begins_anew(asked):
    performance = Performance(Task.SINGLE_LABEL, 2)
    asked.update(performance)
    assert "r_precision" in performance.compute()
    probabilities = torch.stack([1 - asked.probability, asked.probability], 1)
    performance.update(probabilities, rows(asked.answer))
    result = performance.compute()
    assert "r_precision" not in result
    assert "label_f1_micro" not in result
