"""Annotation files as Excel, LibreOffice, Raven, Audacity, Praat and R write them.

`FILES` has a function for each; it gets the name of a recording and its calls, and returns the end
of the file's name and its bytes. All of them say the same.
"""

from collections.abc import Callable, Sequence

Call = tuple[float, float, str]
Calls = Sequence[Call]
File = tuple[str, bytes]

CALLS: Calls = (
    (1.0, 2.5, "Löwe – jung"),
    (3.0, 4.0, "rumble, low"),
    (5.0, 7.5, "cri “aigu”"),
)
ASCII = [(start, end, f"call type {n}") for n, (start, end, _) in enumerate(CALLS)]
RAVEN = (
    "Selection View Channel Begin_Time_(s) End_Time_(s) Low_Freq_(Hz) High_Freq_(Hz) "
    "Annotation"
)
VIEWS = ("Waveform", "Spectrogram")


def number(value: float, mark: str = ".") -> str:
    """Write a number with its fewest decimals."""
    return f"{value:g}".replace(".", mark)


def clock(value: float, decimals: int, *, hours: bool) -> str:
    """Write a time as Excel's formats [h]:mm:ss and mm:ss do."""
    minutes, seconds = divmod(value, 60)
    width = decimals + 3 if decimals else 2
    text = f"{int(minutes):02}:{seconds:0{width}.{decimals}f}"
    return f"00:{text}" if hours else text


def join(
    rows: Sequence[Sequence[str]],
    mark: str,
    *,
    end: str = "\r\n",
    quote_all: bool = False,
) -> str:
    """Join cells as spreadsheets do: those with the mark or a quote are quoted."""

    def quoted(cell: str) -> str:
        if quote_all or mark in cell or '"' in cell or "," in cell:
            return '"' + cell.replace('"', '""') + '"'
        return cell

    return "".join(mark.join(map(quoted, row)) + end for row in rows)


def sheet(
    name: str, calls: Calls, header: str = "File,Start,End,Species", mark: str = "."
) -> list[list[str]]:
    """Return the rows of a spreadsheet."""
    rows = [[name, number(s, mark), number(e, mark), text] for s, e, text in calls]
    return [header.split(","), *rows]


# Excel


def excel_csv_utf8(name: str) -> File:
    return ".csv", join(sheet(name, CALLS), ",").encode("utf-8-sig")


def excel_csv(name: str) -> File:
    return ".csv", join(sheet(name, CALLS), ",").encode("cp1252")


def excel_csv_german(name: str) -> File:
    rows = sheet(name, CALLS, "Datei,Beginn (s),Ende (s),Ruftyp", ",")
    text = "".join(";".join(row) + "\r\n" for row in rows)
    return ".csv", text.encode("cp1252")


def excel_text(name: str) -> File:
    return ".txt", join(sheet(name, CALLS), "\t").encode("cp1252")


def excel_unicode_text(name: str) -> File:
    return ".txt", b"\xff\xfe" + join(sheet(name, CALLS), "\t").encode("utf-16-le")


def excel_csv_macintosh(name: str) -> File:
    return ".csv", join(sheet(name, ASCII), ",", end="\r").encode()


def excel_hours(name: str) -> File:
    rows = [
        [name, clock(start, 3, hours=True), clock(end, 3, hours=True), text]
        for start, end, text in CALLS
    ]
    header = ["File", "Start time", "End time", "Call type"]
    return ".csv", join([header, *rows], ",").encode("utf-8-sig")


def excel_minutes(name: str) -> File:
    rows = [
        [name, clock(start, 1, hours=False), clock(end, 1, hours=False), text]
        for start, end, text in CALLS
    ]
    header = ["File", "Start time", "End time", "Call type"]
    return ".csv", join([header, *rows], ",").encode("cp1252")


def excel_durations(name: str) -> File:
    rows = [
        ["Datei;Start;Dauer (s);Art"],
        *([f"{name};{number(s, ',')};{number(e - s, ',')};{t}"] for s, e, t in CALLS),
    ]
    return ".csv", "".join(f"{row}\r\n" for (row,) in rows).encode("cp1252")


# LibreOffice


def libreoffice_csv(name: str) -> File:
    text = join(sheet(name, CALLS), ",", end="\n", quote_all=True)
    return ".csv", text.encode()


def libreoffice_csv_with_decimal_commas(name: str) -> File:
    return ".csv", join(sheet(name, CALLS, mark=","), ",", end="\n").encode()


def libreoffice_tsv(name: str) -> File:
    return ".tsv", join(sheet(name, CALLS, mark=","), "\t", end="\n").encode()


def libreoffice_utf16(name: str) -> File:
    rows = sheet(name, CALLS, "Fichier,Début,Fin,Espèce", ",")
    text = "".join(";".join(row) + "\n" for row in rows)
    return ".csv", text.encode("utf-16")


# Raven


def raven(mark: str = ".", end: str = "\n") -> str:
    """Return a selection table with both views of each selection."""
    names = [name.replace("_", " ") for name in RAVEN.split()]
    lines = ["\t".join(names)]
    for selection, (start, stop, text) in enumerate(CALLS, start=1):
        times = [f"{start:.9f}".replace(".", mark), f"{stop:.9f}".replace(".", mark)]
        band = ["10.500".replace(".", mark), "200.000".replace(".", mark)]
        for view, frequencies in zip(VIEWS, (["", ""], band), strict=True):
            cells = [str(selection), f"{view} 1", "1", *times, *frequencies, text]
            lines.append("\t".join(cells))
    return end.join([*lines, ""])


def raven_plain(name: str) -> File:
    return ".Table.1.selections.txt", raven().encode()


def raven_with_decimal_commas(name: str) -> File:
    return ".Table.1.selections.txt", raven(",", end="\r\n").encode("cp1252")


def raven_with_offsets(name: str) -> File:
    """Return a table of a sound of several files: its times run on over all of them."""
    own = "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)"
    header = f"{own}\tBegin Path\tFile Offset (s)\tID"
    lines = [header]
    for selection, (start, end, text) in enumerate(CALLS, start=1):
        path = f"D:\\site\\{name}"
        times = f"{start + 3600:.3f}\t{end + 3600:.3f}\t{path}\t{start:.3f}"
        lines.append(f"{selection}\tSpectrogram 1\t1\t{times}\t{text}")
    return ".txt", "\n".join([*lines, ""]).encode()


# Audacity


def audacity(name: str) -> File:
    lines = [f"{start:.6f}\t{end:.6f}\t{text}\n" for start, end, text in CALLS]
    return ".txt", "".join(lines).encode()


def audacity_with_frequencies(name: str) -> File:
    lines = [
        f"{start:.6f}\t{end:.6f}\t{text}\n\\\t10.500000\t-1.000000\n"
        for start, end, text in CALLS
    ]
    return "_labels.txt", "".join(lines).encode()


# Praat


def textgrid(tiers: dict[str, Calls], *, short: bool) -> str:
    """Return interval tiers as Praat writes them, with empty intervals between labels."""
    lines = ['File type = "ooTextFile"', 'Object class = "TextGrid"', ""]
    values: list[tuple[str, object]] = [
        ("xmin", 0),
        ("xmax", 9),
        ("tiers?", "<exists>"),
    ]
    values.append(("size", len(tiers)))
    for tier, calls in tiers.items():
        values += [("class", '"IntervalTier"'), ("name", f'"{tier}"')]
        values += [("xmin", 0), ("xmax", 9), ("intervals: size", 2 * len(calls) + 1)]
        time_s = 0.0
        for start, end, text in calls:
            values += [("xmin", time_s), ("xmax", start), ("text", '""')]
            label = text.replace('"', '""')
            values += [("xmin", start), ("xmax", end), ("text", f'"{label}"')]
            time_s = end
        values += [("xmin", time_s), ("xmax", 9), ("text", '""')]
    for key, value in values:
        if short:
            lines.append(f"{value}")
        else:
            lines.append(
                f"{key} {value}" if key == "tiers?" else f"    {key} = {value} "
            )
    return "\n".join([*lines, ""])


def praat_utf16(name: str) -> File:
    text = textgrid({"Mary": CALLS}, short=False)
    return ".TextGrid", b"\xfe\xff" + text.encode("utf-16-be")


def praat_short(name: str) -> File:
    return ".TextGrid", textgrid({"calls": CALLS}, short=True).encode()


def praat_tiers(name: str) -> File:
    names = [(start, end, "Echo") for start, end, _ in CALLS]
    tiers: dict[str, Calls] = {"caller": names, "call type": CALLS, "notes": names[:1]}
    return ".TextGrid", textgrid(tiers, short=False).encode()


def praat_overlapping_calls(name: str) -> File:
    tiers = {"call": CALLS[:2], "call 2": CALLS[2:], "caller": CALLS[:1]}
    return ".TextGrid", textgrid(tiers, short=True).encode("utf-16")


# R, with the columns of warbleR


def r_rows(name: str, mark: str = ".") -> list[list[str]]:
    """Return cells as R writes them: text is quoted, numbers are not."""
    rows = [['"sound.files"', '"selec"', '"start"', '"end"', '"label"']]
    for selection, (start, end, text) in enumerate(CALLS, start=1):
        times = [number(start, mark), number(end, mark)]
        rows.append([f'"{name}"', str(selection), *times, f'"{text}"'])
    return rows


def r_write_csv(name: str) -> File:
    header, *rows = r_rows(name)
    lines = [['""', *header], *([f'"{n}"', *row] for n, row in enumerate(rows, 1))]
    return ".csv", "\n".join(map(",".join, lines)).encode()


def r_write_csv2(name: str) -> File:
    header, *rows = r_rows(name, ",")
    lines = [['""', *header], *([f'"{n}"', *row] for n, row in enumerate(rows, 1))]
    return ".csv", "\r\n".join(map(";".join, lines)).encode("cp1252")


def r_write_table_of_raven(name: str) -> File:
    header, *lines = [line.split("\t") for line in raven().splitlines()]
    rows = [[f'"{name}"' for name in header]]
    for selection, view, *numbers, text in lines:
        numbers = [cell or "NA" for cell in numbers]
        rows.append([selection, f'"{view}"', *numbers, f'"{text}"'])
    return ".selections.txt", "\n".join([*map("\t".join, rows), ""]).encode()


def r_write_tsv(name: str) -> File:
    """Return a table of readr, with a column of missing values."""
    rows = [[name, number(s), number(e), text, "NA"] for s, e, text in CALLS]
    rows.insert(0, ["sound.files", "start", "end", "label", "bottom.freq"])
    return ".tsv", "\n".join([*map("\t".join, rows), ""]).encode()


FILES: tuple[Callable[[str], File], ...] = (
    excel_csv_utf8,
    excel_csv,
    excel_csv_german,
    excel_text,
    excel_unicode_text,
    excel_csv_macintosh,
    excel_hours,
    excel_minutes,
    excel_durations,
    libreoffice_csv,
    libreoffice_csv_with_decimal_commas,
    libreoffice_tsv,
    libreoffice_utf16,
    raven_plain,
    raven_with_decimal_commas,
    raven_with_offsets,
    audacity,
    audacity_with_frequencies,
    praat_utf16,
    praat_short,
    praat_tiers,
    praat_overlapping_calls,
    r_write_csv,
    r_write_csv2,
    r_write_table_of_raven,
    r_write_tsv,
)
