"""Many jobs at a time: a pool of slots, one process per job, on this machine or on a cluster."""

from attnprobe.launching.pool import Job, Outcome, Pool, Running, Slot
from attnprobe.launching.slots import local_slots, visible_gpus

__all__ = ["Job", "Outcome", "Pool", "Running", "Slot", "local_slots", "visible_gpus"]
