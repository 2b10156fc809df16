import pytest

from attnprobe.findings.studies.base import read_study
from tests.findings.studies.invented import invented_study


@pytest.fixture
def study(tmp_path):
    return lambda *numbers, **settings: read_study(invented_study(tmp_path, *numbers, **settings))
