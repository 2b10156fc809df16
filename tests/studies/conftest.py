from tests.report.conftest import no_pictures

__all__ = ["no_pictures"]
