from tests.invented_runs import no_pictures

__all__ = ["no_pictures"]
