"""What the numbers of finished runs say: `findings(runs)` is the one place that decides; everything
else shows its table."""

from attnprobe.findings.table import findings

__all__ = ["findings"]
