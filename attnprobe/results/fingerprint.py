"""Short names for settings: the same settings have the same one."""

import hashlib
import json
from typing import Any


def fingerprint(content: Any) -> str:
    """Ten hexadecimal digits that stand for a JSON-like value, whatever the order of its keys."""

    def with_text_keys(part: Any) -> Any:  # 1 and "1" cannot be sorted together
        if isinstance(part, dict):
            return {str(key): with_text_keys(value) for key, value in part.items()}
        return [with_text_keys(item) for item in part] if isinstance(part, (list, tuple)) else part

    canonical = json.dumps(with_text_keys(content), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def flattened(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    if not isinstance(content, dict):
        return {prefix: content}
    parts = [
        flattened(value, f"{prefix}.{key}" if prefix else str(key))
        for key, value in content.items()
    ]
    return {key: value for part in parts for key, value in part.items()}
