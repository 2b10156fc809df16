from tests.report.conftest import make_run, no_pictures

__all__ = ["make_run", "no_pictures"]
