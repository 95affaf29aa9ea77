"""Tables of a TOML file: known keys, types, paths and choices, with errors that name them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callshot.errors import InputError, OptionError, check_choice, suggest_name
from callshot.storage import check_no_url

NUMBER = (int, float)
TYPE_NAMES: Mapping[Any, str] = {
    NUMBER: "a number",
    int: "a whole number",
    str: "text in quotes",
    bool: "true or false",
    list: "a list in [brackets]",
    dict: "a table of keys",
    (str, int): "text in quotes or a whole number",
    (str, list): "text in quotes or a list in [brackets]",
}
KEYS: Mapping[str, Mapping[str, Any]] = {
    "": {
        "title": str,
        "out": str,
        "store": str,
        "device": str,
        "corpus": dict,
        "encoder": list,
        "protocol": dict,
        "baselines": dict,
        "report": dict,
    },
    "corpus": {
        "audio": str,
        "annotations": str,
        "format": str,
        "columns": dict,
        "tiers": list,
        "label": str,
        "rename": str,
        "time_unit": str,
        "follow_links": bool,
        "known": str,
        "normalise": bool,
        "folds": int,
        "fold_file": str,
        "group_duplicates": bool,
        "categories": str,
        "min_length_s": NUMBER,
        "collar_s": NUMBER,
        "with_collar": bool,
        "channel": (str, int),
        "rate_hz": int,
        "peak_dbfs": NUMBER,
        "source_rate_hz": NUMBER,
    },
    "protocol": {
        "shots": (str, list),
        "draws": int,
        "bootstraps": int,
        "shared_draws": int,
        "total_samples": int,
        "seed": int,
        "sampler": str,
        "score": str,
        "spread": str,
        "classifiers": list,
        "permutations": int,
        "repeat_folds": int,
        "seeds": int,
    },
    "baselines": {
        "references": str,
        "train": list,
        "per_k": bool,
        "draws": int,
        "spread": str,
        "C": NUMBER,
        "cell": str,
        "seeds": int,
        "init": str,
        "published": str,
    },
    "report": {
        "shots": list,
        "confusion": list,
        "spread": str,
        "figures": bool,
        "pdf": bool,
        "sounds": bool,
        "target": NUMBER,
    },
}


@dataclass(frozen=True)
class Section:
    """A table of the study file, checked; `where` names it in errors."""

    content: Mapping[str, Any]
    where: str
    base: Path

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key."""
        return self.content.get(key, default)

    def without(self, *keys: str) -> dict[str, Any]:
        """Return the content without some keys."""
        return {key: value for key, value in self.content.items() if key not in keys}

    def section(self, name: str) -> "Section":
        """Return a table inside this one, checked; empty where there is none."""
        return read_section(name, self.content.get(name, {}), f"[{name}]", self.base)

    def name(self, key: str) -> str:
        """Return how errors name a key."""
        return f"{self.where} {key}" if self.where else key

    def path(self, key: str, default: str | None = None) -> Path | None:
        """Return a path, whether it exists or not."""
        text = self.content.get(key, default)
        return None if text is None else resolve_path(self.base, text, self.name(key))

    def existing(self, key: str) -> Path | None:
        """Return the path of a file or folder that must exist."""
        path = self.path(key)
        if path is None:
            return None
        try:
            path.stat()
        except FileNotFoundError:
            problem = "does not exist"
        except OSError as error:
            problem = f"cannot be reached ({error.strerror})"
        else:
            return path
        raise InputError(
            f"{self.name(key)}: {path} {problem}; paths are relative to the study file"
        )

    def choice(self, key: str, default: str, choices: Sequence[str]) -> str:
        """Return one of several words."""
        value = str(self.content.get(key, default))
        check_choice(self.name(key), value, choices)
        return value

    def shots(self, key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return a list of k, sorted."""
        shots = self.content.get(key, default)
        for k in shots:
            if type(k) is not int or k < 1:
                raise OptionError(
                    f"{self.name(key)}: expected whole numbers from 1, got {shots!r}"
                )
        return tuple(sorted(set(shots)))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of names."""
        values = self.content.get(key, [])
        if not all(isinstance(value, str) for value in values):
            raise OptionError(
                f"{self.name(key)}: expected names in quotes, got {values!r}"
            )
        return tuple(values)


def read_section(kind: str, content: Any, where: str, base: Path) -> Section:
    """Check the keys of a table and the types of their values."""
    if not isinstance(content, dict):
        raise OptionError(f"{where}: expected a table of keys, got {content!r}")
    section = Section(content, where, base)
    types = KEYS[kind]
    for key, value in content.items():
        name = section.name(key)
        if key not in types:
            raise OptionError(f"{name}: unknown key; {suggest_name(key, types)}")
        expected = types[key]
        is_stray_flag = isinstance(value, bool) and expected is not bool
        if is_stray_flag or not isinstance(value, expected):
            raise OptionError(f"{name}: expected {TYPE_NAMES[expected]}, got {value!r}")
    return section


@contextmanager
def name_errors(where: str) -> Iterator[None]:
    """Write in front of errors what they are about."""
    try:
        yield
    except (OptionError, InputError) as error:
        raise type(error)(f"{where} {error}") from None


def resolve_path(base: Path, text: str, where: str) -> Path:
    """Return a path of the study file, relative to its folder; `where` names it in errors."""
    check_no_url(Path(text))
    try:
        if "\0" in text:
            raise ValueError("it contains a NUL character")
        return base / Path(text).expanduser()
    except (RuntimeError, ValueError) as error:  # an unknown user after ~
        raise OptionError(f"{where}: {text!r} is not a path ({error})") from None
