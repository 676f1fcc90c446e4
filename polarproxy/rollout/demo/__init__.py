"""The small policy that `polarproxy demo` runs: trained by `tests/models/train_demo_model.py`, shipped as GGUF."""

from pathlib import Path


def model_path() -> Path:
    """The GGUF of the calculator policy (about 0.9 million parameters)."""
    return Path(__file__).with_name("calculator.gguf")
