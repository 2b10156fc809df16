import pytest

from attnprobe.importance.base import Subject
from tests.importance.layered import TEXTS
from tests.models.pretrained.families import batch_of, checkpoint, classifier, library


@pytest.fixture(scope="module")
def bert():
    model = classifier("bert", layer=-1)
    batch = batch_of(model, TEXTS)
    model.prepare(batch)
    outputs = model(batch)
    return Subject(model, batch, outputs, model.readout(batch, outputs))


@pytest.fixture(scope="module")
def librarys_bert():
    return library("SequenceClassification", checkpoint("bert"))[0]
