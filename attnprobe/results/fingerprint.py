"""Short names for settings: the same settings have the same one."""

import hashlib
import json
from typing import Any


def fingerprint(content: Any) -> str:
    """Ten hexadecimal digits that stand for a JSON-like value, whatever the order of its keys."""

    def with_text_keys(value: Any) -> Any:  # 1 and "1" cannot be sorted together
        if isinstance(value, dict):
            return {str(key): with_text_keys(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [with_text_keys(item) for item in value]
        return value

    canonical = json.dumps(with_text_keys(content), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def flattened(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    if not isinstance(content, dict):
        return {prefix: content}
    flat: dict[str, Any] = {}
    for key, value in content.items():
        flat |= flattened(value, f"{prefix}.{key}" if prefix else str(key))
    return flat
