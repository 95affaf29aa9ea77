"""A study → one HTML file that needs nothing else: the answer first, then everything, folded."""

from callshot.report.page.folds import PageContent, Picture
from callshot.report.page.page import write_page

__all__ = ["PageContent", "Picture", "write_page"]
