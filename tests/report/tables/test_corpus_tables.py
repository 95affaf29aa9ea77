from dataclasses import replace

from callshot.records import ClassCount, DurationStats
from callshot.report.tables.corpus_tables import (
    class_table,
    corpus_table,
    segment_table,
)
from corpus_results import replace_frames
from report.tables.paper_tables import ELEV_CLASSES, LDC_CLASSES, elev, ldc

RARE = [
    ClassCount("bark", 2, 1, False, "in 2 recordings, and 5 folds need 5"),
    ClassCount("musth rumble, long", 9, 5, False, "no exemplar in fold 3"),
]


def cells(table):
    return {row[0].text: [cell.text for cell in row[1:]] for row in table.rows}


def test_the_papers_table_of_corpora():
    assert cells(corpus_table([elev(), ldc()])) == {
        "Sampling rate (kHz)": ["44.1", "48"],
        "Channels": ["2", "1, 2"],
        "Format": ["WAV PCM_16", "WAV PCM_24"],
        "Call types annotated": ["27", "16"],
        "Audio files": ["226", "1577"],
        "Annotated audio files": ["226", "762"],
        "Total duration (h)": ["0.93", "57.40"],
        "Annotated duration (h)": ["0.93", "32.60"],
        "Average length (s)": ["14.75", "131.03"],
        "Shortest (s)": ["0.49", "1.25"],
        "Longest (s)": ["296.53", "3889.38"],
        "Std. dev. (s)": ["31.55", "177.08"],
        "Cross-validation folds": ["5", "10"],
    }


def test_a_short_corpus_alone_is_measured_in_minutes():
    assert cells(corpus_table([elev()]))["Total duration (min)"] == ["55.60"]


def test_the_papers_table_of_segments():
    assert cells(segment_table([elev(), ldc()])) == {
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


def test_different_minimum_lengths_have_a_row():
    short = replace(elev(), stats=replace(elev().stats, min_length_s=0.25))
    texts = cells(segment_table([short, ldc()]))
    assert texts["Minimum length (s)"] == ["0.25", "1"]
    assert texts["Segments of at least that length"] == ["376", "4103"]


def test_without_recordings_lengths_are_missing_not_0():
    nan = float("nan")
    none = replace(
        elev(),
        stats=replace(
            elev().stats, recordings=DurationStats(0, 0.0, nan, 0.0, 0.0, nan)
        ),
    )
    texts = cells(corpus_table([none]))
    assert texts["Total duration (s)"] == ["0.00"]
    assert texts["Average length (s)"] == texts["Shortest (s)"] == ["–"]


def test_the_papers_tables_of_classes_in_their_order():
    for results, text in ((elev(), ELEV_CLASSES), (ldc(), LDC_CLASSES)):
        table = class_table(results)
        rows = [row.split("|") for row in text.strip().splitlines()]
        assert [[cell.text for cell in row] for row in table.rows] == [
            row[:3] for row in rows
        ]
        assert [row[0].mark for row in table.rows] == [
            "†" if category else "" for *_, category in rows
        ]


def test_ineligible_classes_are_below_with_their_reason():
    results = elev()
    results = replace_frames(results, classes=[*RARE, *results.evaluation.classes])
    table = class_table(replace(results, categories={"bark": "bark"}))
    assert table.foot == 2
    for row, rare in zip(table.rows[:-3:-1], RARE, strict=True):
        texts = [cell.text for cell in row]
        assert texts == [rare.label, str(rare.exemplars), "–", rare.reason]
    assert table.columns[3].name == "Not evaluated because"
    assert not any(row[0].mark for row in table.rows)
