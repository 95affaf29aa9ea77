"""Headers of selection tables in other languages → Raven's own column names.

A column is known by the words in its name and by its unit, in German, French, Spanish and
Portuguese, however they are inflected or abbreviated. Columns that the user added keep their names.
"""

import re
import unicodedata
from collections.abc import Sequence

from callshot.corpus.annotations.rows import normalize_name

BEGIN = "Begin Time (s)"
END = "End Time (s)"
DELTA = "Delta Time (s)"
OFFSET = "File Offset (s)"
# Parts of words, without accents. English words are there for headers that are half translated.
# fmt: off
WORDS = {
    "selection": ("selection", "auswahl", "selektion", "seleccion", "selecao"),
    "view": ("view", "ansicht", "vue", "affichage", "vista", "visualiza"),
    "channel": ("channel", "kanal", "canal", "voie"),
    "begin": ("begin", "start", "anfang", "debut", "depart", "inici", "comienzo", "comeco"),
    "end": ("end", "schluss", "fin", "fim", "termin"),
    "time": ("time", "zeit", "temps", "heure", "tiempo", "hora", "tempo"),
    "low": ("low", "niedrig", "unter", "tief", "bass", "inferi", "baja", "baixa"),
    "high": ("high", "hoch", "hohe", "ober", "haut", "superi", "alta"),
    "frequency": ("freq", "frec"),
    "file": ("file", "datei", "fichier", "archivo", "arquivo", "ficheiro"),
    "path": ("path", "pfad", "chemin", "ruta", "caminho"),
    "offset": ("offset", "versatz", "decalage", "desplazamiento", "desfase", "deslocamento"),
    "length": ("delta", "dauer", "duree", "duracion", "duracao"),
}
# The words that the name of a column has, its unit, and what Raven calls it.
COLUMNS = (
    (("selection",), "", "Selection"),
    (("view",), "", "View"),
    (("channel",), "", "Channel"),
    (("begin", "time"), "s", BEGIN),
    (("end", "time"), "s", END),
    (("low", "frequency"), "hz", "Low Freq (Hz)"),
    (("high", "frequency"), "hz", "High Freq (Hz)"),
    (("begin", "file"), "", "Begin File"),
    (("begin", "path"), "", "Begin Path"),
    (("offset",), "s", OFFSET),
    (("length",), "s", DELTA),
)
# fmt: on
UNIT = re.compile(r"\(([a-z]+)\)$")


def translate_header(names: Sequence[str]) -> list[str]:
    """Return the header with Raven's own names; as it is if it is not a selection table.

    >>> translate_header(["Auswahl", "Anfangszeit (s)", "Endzeit (s)", "Ruftyp"])
    ['Selection', 'Begin Time (s)', 'End Time (s)', 'Ruftyp']
    """
    if is_raven_header(names):
        return list(names)
    translated: list[str] = []
    for name in names:
        raven_name = translate_name(name)
        if raven_name in translated:
            raven_name = name
        translated.append(raven_name)
    if is_raven_header(translated):
        return translated
    return list(names)


def is_raven_header(names: Sequence[str]) -> bool:
    """Return whether a header has the columns that every selection table has."""
    return {normalize_name(name) for name in names} >= {"selection", "begintimes"}


def translate_name(name: str) -> str:
    """Return what Raven calls a column; the name itself if it is none of Raven's."""
    decomposed = unicodedata.normalize("NFKD", name.strip().casefold())
    text = "".join(c for c in decomposed if not unicodedata.combining(c))
    unit = UNIT.search(text)
    found_unit = unit[1] if unit else ""
    for words, expected_unit, raven_name in COLUMNS:
        has_words = all(_has_word(text, word) for word in words)
        if has_words and found_unit == expected_unit:
            return raven_name
    return name


def _has_word(text: str, word: str) -> bool:
    """Return whether a text has a word in one of Raven's languages."""
    return any(part in text for part in WORDS[word])
