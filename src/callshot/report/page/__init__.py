"""A study → one HTML file that needs nothing else: the answer, then collapsible sections."""

from callshot.report.page.write_page import write_page

__all__ = ["write_page"]
