from dataclasses import replace

from callshot.records import ClassCount, DurationStats
from callshot.report.tables.corpora import classes, corpora, segments
from callshot.report.tables.table import Table
from report.tables.paper_tables import ELEV_CLASSES, LDC_CLASSES, elev, ldc

RARE = [
    ClassCount("bark", 2, 1, False, "in 2 recordings, and 5 folds need 5"),
    ClassCount("musth rumble, long", 9, 5, False, "no exemplar in fold 3"),
]


def cells(table: Table) -> dict[str, list[str]]:
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


def test_the_papers_table_of_corpora():
    assert cells(corpora([elev(), ldc()])) == {
        "Sampling rate (kHz)": ["44.1", "48"],
        "Channels": ["2", "1, 2"],
        "Format": ["WAV PCM_16", "WAV PCM_24"],
        "Call types annotated": ["27", "16"],
        "Recordings": ["226", "1577"],
        "Annotated recordings": ["226", "762"],
        "Total duration (h)": ["0.93", "57.40"],
        "Annotated duration (h)": ["0.93", "32.60"],
        "Average length (s)": ["14.75", "131.03"],
        "Shortest (s)": ["0.49", "1.25"],
        "Longest (s)": ["296.53", "3889.38"],
        "Std. dev. (s)": ["31.55", "177.08"],
        "Cross-validation folds": ["5", "10"],
    }


def test_a_short_corpus_alone_is_told_in_minutes():
    assert cells(corpora([elev()]))["Total duration (min)"] == ["55.60"]


def test_the_papers_table_of_segments():
    assert cells(segments([elev(), ldc()])) == {
        "Call types annotated": ["27", "16"],
        "Segments annotated": ["422", "4845"],
        "Annotated duration (h)": ["0.49", "5.55"],
        "Average length (s)": ["4.20", "4.13"],
        "Shortest (s)": ["0.28", "0.07"],
        "Longest (s)": ["26.11", "43.99"],
        "Std. dev. (s)": ["3.63", "3.15"],
        "Segments of at least 1 s": ["376", "4103"],
        "Call types evaluated, C": ["12", "10"],
        "Query segments, Q": ["257", "3985"],
        "Eligible support exemplars": ["258", "3987"],
        "Evaluated duration (h)": ["0.30", "5.37"],
        "Average length, evaluated (s)": ["4.16", "4.85"],
        "Shortest, evaluated (s)": ["1.04", "1.00"],
        "Longest, evaluated (s)": ["21.93", "43.99"],
        "Std. dev., evaluated (s)": ["2.47", "2.99"],
        "Complete shot count": ["4", "31"],
    }


def test_the_evaluated_subset_is_set_apart():
    table = segments([elev()])
    assert table.rows[-table.foot][0].text == "Segments of at least 1 s"


def test_corpora_with_different_minima_say_theirs():
    short = replace(elev(), facts=replace(elev().facts, minimum_s=0.25))
    told = cells(segments([short, ldc()]))
    assert told["Minimum length (s)"] == ["0.25", "1"]
    assert told["Segments of at least that length"] == ["376", "4103"]


def test_lengths_of_nothing_are_missing_not_zero():
    nan = float("nan")
    none = replace(
        elev(), facts=replace(elev().facts, recordings=DurationStats(0, 0.0, nan, 0.0, 0.0, nan))
    )
    told = cells(corpora([none]))
    assert told["Total duration (s)"] == ["0.00"]
    assert told["Average length (s)"] == told["Shortest (s)"] == ["–"]


def test_the_papers_tables_of_classes_in_their_order():
    for corpus_results, text in ((elev(), ELEV_CLASSES), (ldc(), LDC_CLASSES)):
        table = classes(corpus_results)
        rows = [row.split("|") for row in text.strip().splitlines()]
        assert [[cell.text for cell in row] for row in table.rows] == [row[:3] for row in rows]
        assert [row[0].mark for row in table.rows] == [
            "†" if category else "" for *_, category in rows
        ]


def test_the_dagger_tells_the_categories_that_hold_several_classes():
    notes = dict(classes(ldc()).notes)
    assert "roar (longroar-rumble, longroar, roar-rumble, roar); bark (bark-rumble)" in notes["†"]
    assert dict(classes(elev()).notes)["†"] == "In the reduced scoring, a category of its own."


def test_without_categories_there_is_no_dagger():
    table = classes(replace(elev(), categories=None))
    assert not any(row[0].mark for row in table.rows)
    assert "†" not in dict(table.notes)


def test_ineligible_classes_stand_below_with_their_reason():
    corpus_results = elev()
    evaluation = replace(
        corpus_results.evaluation, classes=[*RARE, *corpus_results.evaluation.classes]
    )
    table = classes(replace(corpus_results, evaluation=evaluation, categories={"bark": "bark"}))
    assert table.foot == 2
    assert [cell.text for cell in table.rows[-1]] == ["bark", "2", "–", RARE[0].reason]
    assert [cell.text for cell in table.rows[-2]] == [
        "musth rumble, long",
        "9",
        "–",
        RARE[1].reason,
    ]
    assert table.columns[3].name == "Not evaluated because"
    assert not any(row[0].mark for row in table.rows)


def test_what_was_not_given_is_missing():
    bare = replace(elev(), facts=replace(elev().facts, rates_hz=(), channels=(), kinds=()))
    told = cells(corpora([bare]))
    assert told["Sampling rate (kHz)"] == told["Channels"] == told["Format"] == ["–"]
