"""Results of corpora → tables, declared by the functions that build them, and their writers."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):  # in one order, whoever imports them first
    import_module(f"{__name__}.{_module.name}")
