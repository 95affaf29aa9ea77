"""A study → one HTML file that needs nothing else: the answer, then collapsible sections."""

from callshot.report.page.page import PageContent, Picture, write_page

__all__ = ["PageContent", "Picture", "write_page"]
