"""The bench's data: small models on rules whose deciding words are known (docs/bench.md)."""
