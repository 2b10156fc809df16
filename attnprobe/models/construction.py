"""Parts of a model that the settings describe and the data complete: constructed, or refused in one line."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from attnprobe.errors import UserError

Built = TypeVar("Built")


def check_size(setting: str, number: int) -> None:
    """Raise a `UserError` where something that is counted is less than 1."""
    if number < 1:
        raise UserError(f"{setting}={number}: expected at least 1")


def check_dropout(setting: str, share: float) -> None:
    """Raise a `UserError` where a share that is dropped in training is none, or all."""
    if not 0 <= share < 1:
        raise UserError(f"{setting}={share}: expected a share from 0 to below 1, such as 0.1")


def build(place: str, part: Callable[..., Built], *given: Any, **facts: Any) -> Built:
    """Construct a configured part.

    Args:
        place: its name in the settings, `model.encoder`.
        part: its class, or what Hydra makes of `_partial_: true`.
        given, facts: what follows from the data or the model.

    Raises:
        UserError: the class refuses its settings. Only a configured part is answered so; what a class that is passed in
            Python raises is for its author, and raised as it is.
    """
    try:
        return part(*given, **facts)
    except (TypeError, ValueError, RuntimeError, AssertionError) as error:
        if isinstance(error, UserError) or not isinstance(part, partial):
            raise
        settings: dict[str, Any] = part.keywords
        named = [key for key in settings if key in str(error)] or list(settings)
        where = ", ".join(f"{place}.{key}={settings[key]!r}" for key in named) or place
        name = f"{part.func.__module__}.{part.func.__qualname__}"
        reason = " ".join(str(error).split()) or "no reason given"
        raise UserError(
            f"{where}: {name} cannot be constructed with {', '.join([*settings, *facts]) or 'these arguments'} "
            f"({type(error).__name__}: {reason[:400]}). HYDRA_FULL_ERROR=1 shows where"
        ) from error
