"""A folder of static files that translates in a browser, on the reader's own machine."""

from .folder import to_web
from .runtime import RUNTIME_VERSION


__all__ = ["RUNTIME_VERSION", "to_web"]
