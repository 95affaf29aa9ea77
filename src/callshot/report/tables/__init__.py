"""Results of corpora → tables, and their writers: LaTeX, Markdown, CSV, HTML, a terminal.

Each table is declared by the function that builds it: `@table_of_corpus` or `@table_of_study`, in
any module of this package.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):  # in one order, whoever imports them first
    import_module(f"{__name__}.{_module.name}")
