"""A study → one HTML file that needs nothing else: answers, curves, tables, label budget, pictures, provenance."""

from callshot.report.page.page import write_page

__all__ = ["write_page"]
