"""Pages without pictures, as the report's tests have them."""

from tests.report.conftest import no_pictures

__all__ = ["no_pictures"]
