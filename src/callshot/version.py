"""The version, where anyone may import it from."""

__version__ = "0.2.0.dev0"
