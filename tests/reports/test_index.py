"""Every report has its test and two siblings, and they are there."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.reports.index import REPORTS

TESTS = Path(__file__).parent.parent


@cache
def functions_of(file):
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_has_its_right_answer_and_two_siblings_as_tests(name):
    report = REPORTS[name]
    assert report.tests
    assert len(report.siblings) >= 2
    for node in (*report.tests, *report.siblings):
        file, _, function = node.partition("::")
        assert function in functions_of(file), node
