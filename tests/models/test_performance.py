import pytest
import torch
from sklearn import metrics
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.models.performance import Performance


@pytest.mark.parametrize("classes", [2, 4])
def test_equals_scikit_learn_whatever_the_batches(classes):
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(200, classes, generator=generator).softmax(-1)
    labels = torch.randint(0, classes, (200,), generator=generator)
    performance = Performance(Task.SINGLE_LABEL, classes)
    for part in range(0, 200, 3):
        performance.update(probability[part : part + 3], labels[part : part + 3])
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
    performance.update(probability, labels)
    result = performance.compute()
    assert "accuracy" not in result
    decision = probability > 0.5
    label_accuracy = float((decision == labels).float().mean())
    assert float(result["label_accuracy"]) == pytest.approx(label_accuracy)
    exact_match = metrics.accuracy_score(labels, decision)
    assert float(result["exact_match"]) == pytest.approx(exact_match)
    f1 = metrics.f1_score(labels, decision, average=None)
    assert_close(result["f1"].double(), torch.tensor(f1))
