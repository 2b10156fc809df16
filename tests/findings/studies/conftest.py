import pytest

from attnprobe.findings.studies.base import read_study
from tests.findings.studies.invented import invented_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    def invented(*numbers, **settings):
        place = tmp_path_factory.mktemp("study")
        return read_study(invented_study(place, *numbers, **settings))

    return invented
