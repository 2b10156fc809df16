"""One device or several: single runs may train on several, jobs of a sweep have one each."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from attnprobe.core.errors import UserError


def several_devices(trainer: Mapping[str, Any]) -> bool:
    """Whether these settings of Lightning's trainer ask for more than one device.

    >>> several_devices({"devices": 2}), several_devices({"devices": "0,1"}), several_devices({"devices": "auto"})
    (True, True, False)
    """
    if int(trainer.get("num_nodes") or 1) > 1:
        return True
    devices = trainer["devices"]
    if isinstance(devices, str):
        listed = [part for part in devices.split(",") if part.strip()]
        return len(listed) > 1 or (devices.strip().isdigit() and int(devices) > 1)
    return len(devices) > 1 if isinstance(devices, Sequence) else devices > 1


def refuse_several_devices(trainer: Mapping[str, Any]) -> None:
    """A job of a sweep has one device.

    Raises:
        UserError: it asks for several.
    """
    if several_devices(trainer):
        raise UserError(
            f"trainer.devices={trainer['devices']} in a sweep: every job of a sweep has one device, for several jobs "
            f"that each take several would wait for each other's. Leave trainer.devices out (a sweep uses all devices "
            f"by running several jobs), or start single runs, without -m"
        )


def is_worker_rank() -> bool:
    """Whether this is one of the processes that Lightning started in addition to the first one, to train on several devices.
    The first alone claims the run directory, writes and examines."""
    return int(os.environ.get("LOCAL_RANK", 0)) > 0
