"""Annotation files as Excel, LibreOffice, Raven, Audacity, Praat and R write them.

`FILES` has the end of the file's name, its encoding, and a function that gets the name of a
recording and returns the text. All of them say the same.
"""

from collections.abc import Callable, Sequence

Calls = Sequence[tuple[float, float, str]]
Rows = list[list[str]]

CALLS: Calls = (
    (1.0, 2.5, "Löwe – jung"),
    (3.0, 4.0, "rumble, low"),
    (5.0, 7.5, "cri “aigu”"),
)
ASCII = [(start, end, f"call type {n}") for n, (start, end, _) in enumerate(CALLS)]
HEADER = "File,Start,End,Species"
RAVEN = (
    "Selection View Channel Begin_Time_(s) End_Time_(s) Low_Freq_(Hz) High_Freq_(Hz) "
    "Annotation"
)
OFFSETS = (
    "Selection View Channel Begin_Time_(s) End_Time_(s) Begin_Path File_Offset_(s) ID"
)


def number(value: float, mark: str = ".") -> str:
    """Write a number with its fewest decimals."""
    return f"{value:g}".replace(".", mark)


def clock(value: float, form: str) -> str:
    """Write seconds after hours and minutes, as Excel's formats [h]:mm:ss and mm:ss do."""
    return form.format(*divmod(value, 60))


def join(
    rows: Rows, mark: str = ",", end: str = "\r\n", *, quoted: tuple[str, ...] = (",",)
) -> str:
    """Join cells as spreadsheets do: those with the mark or one of `quoted` are quoted."""
    lines = []
    for row in rows:
        is_quoted = [any(one in cell for one in (mark, *quoted)) for cell in row]
        cells = [
            f'"{cell}"' if q else cell for cell, q in zip(row, is_quoted, strict=True)
        ]
        lines.append(mark.join(cells) + end)
    return "".join(lines)


def sheet(
    name: str,
    header: str = HEADER,
    write: Callable[[float], str] = number,
    calls: Calls = CALLS,
) -> Rows:
    """Return the rows of a spreadsheet."""
    rows = [[name, write(start), write(end), text] for start, end, text in calls]
    return [header.split(","), *rows]


def with_comma(value: float) -> str:
    return number(value, ",")


def in_hours(value: float) -> str:
    return clock(value, "00:{:02.0f}:{:06.3f}")


def in_minutes(value: float) -> str:
    return clock(value, "{:02.0f}:{:04.1f}")


def plain(rows: Rows, mark: str, end: str) -> str:
    return "".join(mark.join(row) + end for row in rows)


def semicolons(rows: Rows) -> str:
    return plain(rows, ";", "\r\n")


def durations(name: str) -> Rows:
    rows = [[name, with_comma(s), with_comma(e - s), text] for s, e, text in CALLS]
    return [["Datei", "Start", "Dauer (s)", "Art"], *rows]


def raven(mark: str = ".", end: str = "\n") -> str:
    """Return a selection table with both views of each selection."""
    rows = [[name.replace("_", " ") for name in RAVEN.split()]]
    for selection, (start, stop, text) in enumerate(CALLS, start=1):
        times = [f"{start:.9f}".replace(".", mark), f"{stop:.9f}".replace(".", mark)]
        band = [f"10{mark}500", f"200{mark}000"]
        for view, frequencies in (("Waveform 1", ["", ""]), ("Spectrogram 1", band)):
            rows.append([str(selection), view, "1", *times, *frequencies, text])
    return plain(rows, "\t", end)


def raven_with_offsets(name: str) -> str:
    """Return a table of a sound of several files: its times run on over all of them."""
    rows = [[name.replace("_", " ") for name in OFFSETS.split()]]
    for selection, (start, end, text) in enumerate(CALLS, start=1):
        times = [f"{start + 3600:.3f}", f"{end + 3600:.3f}"]
        place = [f"D:\\site\\{name}", f"{start:.3f}", text]
        rows.append([str(selection), "Spectrogram 1", "1", *times, *place])
    return plain(rows, "\t", "\n")


def audacity(between: str = "\n") -> str:
    return "".join(f"{s:.6f}\t{e:.6f}\t{text}{between}" for s, e, text in CALLS)


def textgrid(tiers: dict[str, Calls], *, short: bool) -> str:
    """Return interval tiers as Praat writes them, with empty intervals between labels."""
    values: list[tuple[str, object]] = [("xmin", 0), ("xmax", 9)]
    values += [("tiers?", "<exists>"), ("size", len(tiers))]
    for tier, calls in tiers.items():
        values += [("class", '"IntervalTier"'), ("name", f'"{tier}"')]
        values += [("xmin", 0), ("xmax", 9), ("intervals: size", 2 * len(calls) + 1)]
        time_s = 0.0
        for start, end, text in calls:
            values += [("xmin", time_s), ("xmax", start), ("text", '""')]
            values += [("xmin", start), ("xmax", end), ("text", f'"{text}"')]
            time_s = end
        values += [("xmin", time_s), ("xmax", 9), ("text", '""')]
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    for key, value in values:
        long = f"{key} {value}" if key == "tiers?" else f"    {key} = {value} "
        lines.append(f"{value}" if short else long)
    return "\n".join([*lines, ""])


NAMES = [(start, end, "Echo") for start, end, _ in CALLS]
TYPES: dict[str, Calls] = {"caller": NAMES, "call type": CALLS, "notes": NAMES[:1]}
OVERLAPPING = {"call": CALLS[:2], "call 2": CALLS[2:], "caller": CALLS[:1]}


def r_rows(name: str, mark: str = ".") -> Rows:
    """Return cells as R writes them, with the columns of warbleR: text is quoted."""
    header = ["", "sound.files", "selec", "start", "end", "label"]
    rows = [[f'"{cell}"' for cell in header]]
    for selection, (start, end, text) in enumerate(CALLS, start=1):
        times = [number(start, mark), number(end, mark)]
        rows.append(
            [f'"{selection}"', f'"{name}"', str(selection), *times, f'"{text}"']
        )
    return rows


def r_raven() -> str:
    header, *lines = [line.split("\t") for line in raven().splitlines()]
    rows = [[f'"{name}"' for name in header]]
    for selection, view, *numbers, text in lines:
        filled = [cell or "NA" for cell in numbers]
        rows.append([selection, f'"{view}"', *filled, f'"{text}"'])
    return plain(rows, "\t", "\n")


def r_readr(name: str) -> str:
    """Return a table with a column of missing values."""
    header, *rows = sheet(name, "sound.files,start,end,label")
    return plain(
        [[*header, "bottom.freq"], *([*row, "NA"] for row in rows)], "\t", "\n"
    )


GERMAN = "Datei,Beginn (s),Ende (s),Ruftyp"
FRENCH = "Fichier,Début,Fin,Espèce"
TIMES = "File,Start time,End time,Call type"
TABLE = ".Table.1.selections.txt"
GRID = ".TextGrid"
BANDS = "\n\\\t10.500000\t-1.000000\n"
FILES: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "excel_csv_utf8": (".csv", "utf-8-sig", lambda n: join(sheet(n))),
    "excel_csv": (".csv", "cp1252", lambda n: join(sheet(n))),
    "excel_german": (
        ".csv",
        "cp1252",
        lambda n: semicolons(sheet(n, GERMAN, with_comma)),
    ),
    "excel_text": (".txt", "cp1252", lambda n: join(sheet(n), "\t")),
    "excel_unicode": (".txt", "utf-16", lambda n: join(sheet(n), "\t")),
    "excel_macintosh": (
        ".csv",
        "ascii",
        lambda n: join(sheet(n, calls=ASCII), end="\r"),
    ),
    "excel_hours": (".csv", "utf-8-sig", lambda n: join(sheet(n, TIMES, in_hours))),
    "excel_minutes": (".csv", "cp1252", lambda n: join(sheet(n, TIMES, in_minutes))),
    "excel_durations": (".csv", "cp1252", lambda n: semicolons(durations(n))),
    "office_quoted": (
        ".csv",
        "utf-8",
        lambda n: join(sheet(n), end="\n", quoted=("",)),
    ),
    "office_csv": (".csv", "utf-8", lambda n: join(sheet(n, HEADER, with_comma))),
    "office_tsv": (".tsv", "utf-8", lambda n: join(sheet(n, HEADER, with_comma), "\t")),
    "office_utf16": (
        ".csv",
        "utf-16",
        lambda n: semicolons(sheet(n, FRENCH, with_comma)),
    ),
    "raven_plain": (TABLE, "utf-8", lambda n: raven()),
    "raven_commas": (TABLE, "cp1252", lambda n: raven(",", "\r\n")),
    "raven_with_offsets": (".txt", "utf-8", raven_with_offsets),
    "audacity": (".txt", "utf-8", lambda n: audacity()),
    "audacity_bands": ("_labels.txt", "utf-8", lambda n: audacity(BANDS)),
    "praat_utf16": (
        GRID,
        "utf-16-be",
        lambda n: "\ufeff" + textgrid({"Mary": CALLS}, short=False),
    ),
    "praat_short": (GRID, "utf-8", lambda n: textgrid({"calls": CALLS}, short=True)),
    "praat_tiers": (GRID, "utf-8", lambda n: textgrid(TYPES, short=False)),
    "praat_overlapping": (GRID, "utf-16", lambda n: textgrid(OVERLAPPING, short=True)),
    "r_write_csv": (".csv", "utf-8", lambda n: plain(r_rows(n), ",", "\n")),
    "r_write_csv2": (".csv", "cp1252", lambda n: semicolons(r_rows(n, ","))),
    "r_raven": (".selections.txt", "utf-8", lambda n: r_raven()),
    "r_write_tsv": (".tsv", "utf-8", r_readr),
}
