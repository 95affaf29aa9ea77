"""A study → one HTML file that needs nothing else.

It has answers, curves, tables, the label budget, pictures, and the provenance.
"""

from callshot.report.page.page import write_page

__all__ = ["write_page"]
