"""A target → the sentence that says how many examples per call type reach it, or that none does."""

from callshot.errors import count_text
from callshot.fewshot.label_budget import labels_for_target
from callshot.records.frames import Frame
from callshot.report.summary.context import Context, Point, Sentences, format_share

# What a share of samples is a share of.
CASES = "labelled sets and recordings"


def describe_target(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs for the target, if one was given."""
    if context.target is not None:
        answers = labels_for_target(context.evaluation, context.target)
        yield from describe_targets(answers.filter(encoder=context.best))


def describe_targets(answers: Frame) -> Sentences:
    """Yield a sentence for every encoder and classifier, from rows of the TARGETS schema."""
    has_others = answers["classifier"].n_unique() > 1
    for row in answers.iter_rows(named=True):
        name = row["encoder"]
        if has_others:
            name = f"{name}, {row['classifier']}"
        yield f"{_describe_answer(row | {'name': name})}."


def _describe_answer(row: Point) -> str:
    name = row["name"]
    target = f"mAP {row['target']:g}"
    unknown = f"How many examples per call type {name} needs for {target} is not known"
    if row["last_k"] is None:
        return f"{unknown}: every evaluated k is more than some call type can give"
    if row["k_mean"] is None:
        mean = f"{row['last_mean']:.2f}"
        return f"{unknown}. {_describe_last(row)}, it reaches {mean} on average"
    shots = _describe_shots(row, "k_mean")
    certainty = _describe_certainty(row)
    return f"{name} reaches {target} on average with {shots}{certainty}"


def _describe_last(row: Point) -> str:
    return f"With {row['last_k']}, the most evaluated with every call type complete"


def _describe_certainty(row: Point) -> str:
    """Return from where nearly all samples reach the target."""
    if row["k_clear"] is not None:
        shots = _describe_shots(row, "k_clear")
        return f". In 98 % of {CASES}, it reaches this with {shots}"
    share = format_share(row["last_share"])
    return (
        f". How many it needs for 98 % of {CASES} is not known. {_describe_last(row)}, "
        f"{share} % reach it"
    )


def _describe_shots(row: Point, column: str) -> str:
    k = row[column]
    text = count_text(k, "example")
    if k == row["first_k"] and k > 1:
        text += " or fewer"
    return f"{text} per call type"
