"""How the page calls metrics and writes numbers."""

from math import isfinite

METRICS = {"map": "mAP", "auroc": "AUROC", "accuracy": "accuracy"}
OF_A_CLASS = {"map": "AP"}


def metric_name(scoring: str, metric: str) -> str:
    """Return what people call a metric.

    >>> metric_name("all", "map"), metric_name("reduced", "map")
    ('mAP', 'reduced mAP')
    """
    name = METRICS.get(metric, metric)
    return name if scoring == "all" else f"{scoring} {name}"


def class_metric_name(metric: str) -> str:
    """Return what people call a metric of one class: its AP is no mean."""
    return OF_A_CLASS.get(metric, METRICS.get(metric, metric))


def number(value: float, digits: int = 3) -> str:
    """Write a number, or a dash where there is none.

    >>> number(0.12345), number(float("nan"))
    ('0.123', '–')
    """
    return f"{value:.{digits}f}".replace("-", "−") if isfinite(value) else "–"


def signed(value: float, digits: int = 3) -> str:
    """Write a difference with its sign; what rounds to zero has none.

    >>> signed(0.0214), signed(-0.5), signed(-0.0001)
    ('+0.021', '−0.500', '0.000')
    """
    if isfinite(value) and round(value, digits) == 0:
        return number(0.0, digits)
    return f"+{number(value, digits)}" if value > 0 else number(value, digits)


def count(n: int, what: str, several: str = "") -> str:
    """Write how many there are of something.

    >>> count(1, "class", "classes"), count(1200, "query", "queries"), count(2, "recording")
    ('1 class', '1,200 queries', '2 recordings')
    """
    return f"{n:,} {what if n == 1 else several or what + 's'}"
