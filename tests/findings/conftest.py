"""Invented runs, as the report's tests have them."""

from tests.report.conftest import make_run

__all__ = ["make_run"]
