"""A study → one HTML file that needs nothing else: the answer, then collapsible sections."""

from callshot.report.page.page import write_page
from callshot.report.page.question_sections import PageContent, Picture

__all__ = ["PageContent", "Picture", "write_page"]
