import pytest
import torch
from sklearn import metrics
from torch.testing import assert_close

from attnprobe.core.batch import Batch, Task
from attnprobe.models.performance import Performance


def rows(labels, **columns):
    """A batch with these labels; its words do not matter."""
    ids = torch.ones(len(labels), 1, dtype=torch.long)
    return Batch(ids, ids > 0, ids > 0, labels, torch.arange(len(labels)), **columns)


@pytest.mark.parametrize("classes", [2, 4])
def test_equals_scikit_learn_whatever_the_batches(classes):
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200, classes, generator=generator).softmax(-1)
    labels = torch.randint(0, classes, (200,), generator=generator)
    performance = Performance(Task.SINGLE_LABEL, classes)
    for part in range(0, 200, 3):
        performance.update(probability[part : part + 3], rows(labels[part : part + 3]))
    result = performance.compute()
    decision = probability.argmax(-1)
    assert float(result["accuracy"]) == pytest.approx(metrics.accuracy_score(labels, decision))
    f1 = metrics.f1_score(labels, decision, average=None)
    assert_close(result["f1"].double(), torch.tensor(f1))
    assert float(result["f1_macro"]) == pytest.approx(f1.mean())
    scores = probability[:, 1] if classes == 2 else probability
    area = metrics.roc_auc_score(labels, scores, multi_class="ovr")
    assert float(result["roc_auc"]) == pytest.approx(area, abs=1e-6)
    targets = labels if classes == 2 else torch.nn.functional.one_hot(labels)
    precision = metrics.average_precision_score(targets, scores)
    assert float(result["pr_auc"]) == pytest.approx(precision, abs=1e-6)


def test_metrics_of_several_labels_are_scikit_learns():
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(100, 3, generator=generator)
    labels = torch.randint(0, 2, (100, 3), generator=generator).float()
    performance = Performance(Task.MULTI_LABEL, 3)
    performance.update(probability, rows(labels))
    result = performance.compute()
    assert "accuracy" not in result
    decision = probability > 0.5
    label_accuracy = float((decision == labels).float().mean())
    assert float(result["label_accuracy"]) == pytest.approx(label_accuracy)
    exact_match = metrics.accuracy_score(labels, decision)
    assert float(result["exact_match"]) == pytest.approx(exact_match)
    f1 = metrics.f1_score(labels, decision, average=None)
    assert_close(result["f1"].double(), torch.tensor(f1))


LABELS = 7


def asked_rows(texts=40, seed=0):
    """Probability of a yes, answer, label and text of rows that ask texts for most labels."""
    generator = torch.Generator().manual_seed(seed)
    text, label = torch.meshgrid(torch.arange(texts), torch.arange(LABELS), indexing="ij")
    is_asked = torch.rand(texts, LABELS, generator=generator) < 0.9
    answer = torch.rand(texts, LABELS, generator=generator) < 0.3
    answer[:, -1] = False  # a label that no text has
    probability = torch.rand(texts, LABELS, generator=generator)
    return tuple(column[is_asked] for column in (probability, answer.long(), label, text))


def test_metrics_of_asked_labels_are_those_of_a_loop_over_labels_and_texts():
    probability, answer, label, text = asked_rows()
    performance = Performance(Task.SINGLE_LABEL, 2)
    for start in range(0, len(text), 5):  # batches that cut texts
        part = slice(start, start + 5)
        names = torch.stack([torch.full_like(label, 2), label + 4, torch.full_like(label, 3)], 1)
        both = torch.stack([1 - probability, probability], 1)
        batch = rows(answer[part], question=names[part], text_number=text[part])
        performance.update(both[part], batch)
    result = performance.compute()
    expected = f1_of_labels(answer, probability > 0.5, label) | precisions(*asked_rows())
    for name, number in expected.items():
        assert float(result[name]) == pytest.approx(number), name


def f1_of_labels(answer, decision, label):
    """F1 of each label but the last, which no text has, and of all decisions together."""
    scores = [
        metrics.f1_score(answer[label == number], decision[label == number])
        for number in range(LABELS - 1)
    ]
    macro = sum(scores) / len(scores)
    return {"label_f1_macro": macro, "label_f1_micro": metrics.f1_score(answer, decision)}


def precisions(probability, answer, _, text):
    """Precision of a text's five likeliest labels, and of as many as it has; mean of the texts."""
    precision, r_precision = [], []
    for number in text.unique():
        own = text == number
        ranked = answer[own][probability[own].argsort(descending=True)]
        precision.append(int(ranked[:5].sum()) / 5)
        present = int(ranked.sum())
        if present:
            r_precision.append(int(ranked[:present].sum()) / present)
    assert len(r_precision) < len(precision)  # some text has no label
    return {
        "precision_at_5": sum(precision) / len(precision),
        "r_precision": sum(r_precision) / len(r_precision),
    }


def test_rows_that_ask_for_no_label_have_no_such_metrics_and_the_next_pass_begins_anew():
    probability, answer, label, text = asked_rows()
    performance = Performance(Task.SINGLE_LABEL, 2)
    both = torch.stack([1 - probability, probability], 1)
    names = label[:, None].expand(-1, 3)
    performance.update(both, rows(answer, question=names, text_number=text))
    assert "r_precision" in performance.compute()
    performance.update(both, rows(answer))
    assert not {"r_precision", "label_f1_micro"} & set(performance.compute())
