"""New weights come in; they wait beside the encoder's own until they have been run once.

    home()/weights/<encoder>.new/     as weights/<encoder>/; emptied before and after each use,
                                      but for unfinished downloads, which resume

An encoder whose weights have the name `<encoder>.new` opens them there.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from callshot.encoders.weights.weight_files import (
    Weight,
    read_record,
    record_path,
    weight_folder,
)
from callshot.errors import InputError, OutputError
from callshot.files import error_reason, hold_lock, replace_file

DERIVED = "derived"
UNFINISHED = (".part", ".part.json")


@contextmanager
def stage_weights(encoder: str) -> Iterator[str]:
    """Yield the name under which new weights wait, to one process or thread at a time."""
    name = f"{encoder}.new"
    folder = weight_folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.with_name(f".{name}.lock")):
            _empty(folder)
            try:
                yield name
            finally:
                _empty(folder)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(
            f"{folder}: weights cannot be written there ({error_reason(error)}); "
            "free some space, or set CALLSHOT_HOME to another folder"
        ) from error


def check_first_use(encoder: str, staged: str, weight: Weight) -> None:
    """Check that a new weight without a published sha256 is the one that came first."""
    first = read_record(weight_folder(encoder) / weight.file, weight)
    new = read_record(weight_folder(staged) / weight.file, weight)
    if weight.sha256 is not None or first is None or new is None:
        return
    if first["sha256"] != new["sha256"]:
        raise InputError(
            f"{encoder}: {weight.file}: expected sha256 {first['sha256']}, as at first use, "
            f"got {new['sha256']}; not kept. If you trust the new file more, "
            "give the command again with --replace"
        )


def keep_weights(encoder: str, staged: str, weights: Sequence[Weight]) -> list[Path]:
    """Move weights that have run, and what was derived from them, to their place."""
    paths = []
    for weight in weights:
        source = weight_folder(staged) / weight.file
        target = weight_folder(encoder) / weight.file
        target.parent.mkdir(parents=True, exist_ok=True)
        # A record is harmless without its file.
        replace_file(record_path(source), record_path(target))
        replace_file(source, target)
        paths.append(target)
    _keep_derived(weight_folder(staged) / DERIVED, weight_folder(encoder) / DERIVED)
    return paths


def _keep_derived(source: Path, target: Path) -> None:
    """Move derived files, which are named after the content that they come from."""
    for file in source.glob("*/[!.]*"):
        place = target / file.parent.name / file.name
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, place)


def _empty(folder: Path) -> None:
    """Remove everything in a folder of new weights but unfinished downloads."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif not path.name.endswith(UNFINISHED):
            path.unlink()
    if not any(folder.iterdir()):
        shutil.rmtree(folder, ignore_errors=True)
