"""Annotation files as Excel, LibreOffice, Raven, Audacity, Praat and R write them.

`FILES` has the end of the file's name, its encoding, and a function that gets the name of a
recording and returns the text. All of them say the same.
"""

from collections.abc import Callable, Sequence

Calls = Sequence[tuple[float, float, str]]
Make = Callable[[str], str]

CALLS: Calls = (
    (1.0, 2.5, "Löwe – jung"),
    (3.0, 4.0, "rumble, low"),
    (5.0, 7.5, "cri “aigu”"),
)
ASCII = [(start, end, f"call type {n}") for n, (start, end, _) in enumerate(CALLS)]
HEADER = "File,Start,End,Species"
RAVEN = "Selection,View,Channel,Begin Time (s),End Time (s)"


def with_comma(value: float) -> str:
    return f"{value:g}".replace(".", ",")


def in_hours(value: float) -> str:
    return "00:{:02.0f}:{:06.3f}".format(*divmod(value, 60))


def join(rows: Sequence[Sequence[str]], mark: str, end: str) -> str:
    """Join cells; those with the mark are quoted."""
    lines = []
    for row in rows:
        cells = [f'"{cell}"' if mark in cell else cell for cell in row]
        lines.append(mark.join(cells) + end)
    return "".join(lines)


def sheet(
    header: str = HEADER,
    mark: str = ",",
    end: str = "\r\n",
    write: Callable[[float], str] = "{:g}".format,
    calls: Calls = CALLS,
    *,
    has_length: bool = False,
) -> Make:
    """Return a function that makes a spreadsheet, with lengths or with ends of calls."""

    def make(name: str) -> str:
        rows = [header.split(",")]
        for start, stop, text in calls:
            last = stop - start if has_length else stop
            rows.append([name, write(start), write(last), text])
        return join(rows, mark, end)

    return make


def raven(write: Callable[[float], str], missing: str = "", quote: str = "") -> str:
    """Return a selection table with both views of each selection."""
    names = f"{RAVEN},Low Freq (Hz),High Freq (Hz),Annotation".split(",")
    rows = ["\t".join(f"{quote}{name}{quote}" for name in names)]
    for n, (start, stop, text) in enumerate(CALLS, start=1):
        bands = {"Waveform 1": [missing] * 2, "Spectrogram 1": [write(10.5), "200"]}
        for view, band in bands.items():
            cells = [f"{quote}{view}{quote}", "1", write(start), write(stop), *band]
            rows.append("\t".join([str(n), *cells, f"{quote}{text}{quote}"]))
    return "\n".join([*rows, ""])


def raven_with_offsets(name: str) -> str:
    """Return a table of a sound of several files: its times run on over all of them."""
    rows = [f"{RAVEN},Begin Path,File Offset (s),ID".split(",")]
    for n, (start, end, text) in enumerate(CALLS, start=1):
        times = [f"{start + 3600:.3f}", f"{end + 3600:.3f}"]
        place = [f"D:\\site\\{name}", f"{start:.3f}", text]
        rows.append([str(n), "Spectrogram 1", "1", *times, *place])
    return join(rows, "\t", "\n")


def format_textgrid(tiers, *, short=False):
    """Write a TextGrid as Praat does; a tier of pairs is one of points."""
    lines = ['File type = "ooTextFile"']
    lines += ['"TextGrid"' if short else 'Object class = "TextGrid"', ""]

    def add(name, value):
        lines.append(f"{value}" if short else f"    {name} = {value} ")

    def add_title(text):
        lines.extend([] if short else [text])

    def quote(text):
        return '"' + text.replace('"', '""') + '"'

    add("xmin", 0)
    add("xmax", 100)
    lines.append("<exists>" if short else "tiers? <exists> ")
    add("size", len(tiers))
    add_title("item []: ")
    for i, (name, entries) in enumerate(tiers.items(), start=1):
        points = bool(entries) and len(entries[0]) == 2
        what = "points" if points else "intervals"
        keys = ["number"] if points else ["xmin", "xmax"]
        add_title(f"    item [{i}]:")
        add("class", quote("TextTier" if points else "IntervalTier"))
        add("name", quote(name))
        add("xmin", 0)
        add("xmax", 100)
        add(f"{what}: size", len(entries))
        for j, (*times, text) in enumerate(entries, start=1):
            add_title(f"        {what} [{j}]:")
            for key, value in zip(keys, times, strict=True):
                add(key, value)
            add("mark" if points else "text", quote(text))
    return "\n".join(lines) + "\n"


def textgrid(tiers: dict[str, Calls], *, short: bool) -> str:
    """Return interval tiers with empty intervals between labels."""
    filled = {}
    for tier, calls in tiers.items():
        ends = [0.0, *(end for _, end, _ in calls)]
        starts = [*(start for start, _, _ in calls), 9.0]
        gaps = [(end, start, "") for end, start in zip(ends, starts, strict=True)]
        filled[tier] = sorted([*gaps, *calls])
    return format_textgrid(filled, short=short)


def r_table(name: str) -> str:
    """Return cells as R's write.csv does, with the columns of warbleR: text is quoted."""
    lines = ['"","sound.files","selec","start","end","label"']
    for n, (start, end, text) in enumerate(CALLS, start=1):
        lines.append(f'"{n}","{name}",{n},{start:g},{end:g},"{text}"')
    return "\n".join([*lines, ""])


def r_readr(name: str) -> str:
    """Return a table with a column of missing values."""
    rows = [f"{name}\t{start:g}\t{end:g}\t{text}\tNA" for start, end, text in CALLS]
    return "\n".join(["sound.files\tstart\tend\tlabel\tbottom.freq", *rows, ""])


NAMES = [(start, end, "Echo") for start, end, _ in CALLS]
TYPES: dict[str, Calls] = {"caller": NAMES, "call type": CALLS, "notes": NAMES[:1]}
OVERLAPPING = {"call": CALLS[:2], "call 2": CALLS[2:], "caller": CALLS[:1]}
GERMAN = "Datei,Beginn (s),Ende (s),Ruftyp"
LENGTHS = "Datei,Start,Dauer (s),Art"
FRENCH = "Fichier,Début,Fin,Espèce"
TRACK = "".join(f"{s:f}\t{e:f}\t{text}\n\\\t10.5\t-1.0\n" for s, e, text in CALLS)
TABLE = ".Table.1.selections.txt"
GRID = ".TextGrid"
FILES: dict[str, tuple[str, str, Make]] = {
    "excel_csv": (".csv", "cp1252", sheet()),
    "excel_csv_utf8": (".csv", "utf-8-sig", sheet(write=in_hours)),
    "excel_german": (".csv", "cp1252", sheet(GERMAN, ";", write=with_comma)),
    "excel_unicode": (".txt", "utf-16", sheet(mark="\t")),
    "excel_macintosh": (".csv", "ascii", sheet(end="\r", calls=ASCII)),
    "excel_lengths": (".csv", "cp1252", sheet(LENGTHS, ";", has_length=True)),
    "office_csv": (".csv", "utf-8", sheet(write=with_comma)),
    "office_utf16": (".csv", "utf-16", sheet(FRENCH, ";", write=with_comma)),
    "raven_plain": (TABLE, "utf-8", lambda n: raven("{:.9f}".format)),
    "raven_commas": (TABLE, "cp1252", lambda n: raven(with_comma)),
    "raven_with_offsets": (".txt", "utf-8", raven_with_offsets),
    "audacity_bands": ("_labels.txt", "utf-8", lambda n: TRACK),
    "praat_utf16": (GRID, "utf-16", lambda n: textgrid({"Mary": CALLS}, short=False)),
    "praat_tiers": (GRID, "utf-8", lambda n: textgrid(TYPES, short=False)),
    "praat_overlapping": (GRID, "utf-16", lambda n: textgrid(OVERLAPPING, short=True)),
    "r_write_csv": (".csv", "utf-8", r_table),
    "r_raven": (".selections.txt", "utf-8", lambda n: raven("{:g}".format, "NA", '"')),
    "r_write_tsv": (".tsv", "utf-8", r_readr),
}
