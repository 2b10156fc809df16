from tests.invented_runs import make_run, no_pdf, no_pictures

__all__ = ["make_run", "no_pdf", "no_pictures"]
