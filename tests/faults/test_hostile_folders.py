"""A part of the campaign; the whole of it is `python -m tests.faults.hostile_folders`."""

import pytest

from tests.faults.hostile_folders import campaign


@pytest.mark.parametrize("folders", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_no_folder_of_a_stranger_leads_a_command_outside(folders):
    endings, wrong = campaign(folders)
    assert wrong == []
    assert endings["done"] > folders
    assert endings["refused"] > folders
