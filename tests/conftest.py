"""Shape annotations are checked at run time in the tests (jaxtyping with beartype); users pay nothing for them."""

from jaxtyping import install_import_hook

with install_import_hook("attnprobe", "beartype.beartype"):
    import attnprobe  # noqa: F401
