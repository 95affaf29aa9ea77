"""What this machine has → a list of checks: what was found, and what to do about it.

Nothing is written except a nameless file in each folder that is tried, which is gone at once.
"""

import io
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from callshot.encoders.catalogue import list_specs
from callshot.encoders.embed import default_store
from callshot.encoders.install import PACKAGES, list_needs
from callshot.encoders.workers import default_threads
from callshot.errors import CallshotError, count_text
from callshot.files import error_reason, find_existing, why_not_writable
from callshot.storage import home
from callshot.version import __version__

GOOD = "good"
NOTE = "note"  # something is missing that some users need
PROBLEM = "problem"

REQUIRED = (
    "numpy",
    "scipy",
    "numba",
    "threadpoolctl",
    "polars",
    "pyarrow",
    "soundfile",
    "soxr",
    "platformdirs",
    "filelock",
    "jinja2",
    "matplotlib",
    "typer",
    "rich",
)
# The modules that each extra of the package brings.
EXTRAS = {
    **PACKAGES,
    "annotations": ("crowsetta",),
    "cluster": ("distributed", "cryptography"),
    "hoplite": ("usearch",),
    "review": ("starlette", "uvicorn"),
    "storage": ("fsspec", "s3fs"),
}
# Names in libsndfile of the containers and codings that recorders and other programs write.
AUDIO_FORMATS = {
    "WAV": ("WAV", "PCM_16"),
    "FLAC": ("FLAC", "PCM_16"),
    "Ogg Vorbis": ("OGG", "VORBIS"),
    "Ogg Opus": ("OGG", "OPUS"),
    "MP3": ("MP3", "MPEG_LAYER_III"),
}
TEST_RATE_HZ = 48000
TEST_TONE_HZ = 440
MIN_FREE_GB = 2.0
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    state   GOOD, NOTE or PROBLEM
    found   what is there
    advice  what to do; empty where nothing is needed
    """

    subject: str
    state: str
    result: str
    advice: str = ""


def check_installation() -> Iterator[Check]:
    """Check Python, packages, audio, encoders, the GPU, folders and threads, in this order."""
    yield Check("Python", GOOD, _describe_python())
    yield from _check_packages()
    yield _check_audio_formats()
    try:
        for spec in list_specs():
            subject = f"encoder {spec.name}"
            needs = list_needs(spec)
            if needs:
                yield Check(subject, NOTE, "not ready", "; then ".join(needs))
            else:
                yield Check(subject, GOOD, "ready")
    except CallshotError as error:
        advice = "repair or remove the package that adds this encoder"
        yield Check("encoders", PROBLEM, str(error), advice)
    yield _check_gpu()
    temporary = Path(tempfile.gettempdir())
    yield check_folder("folder of weights", home(), "set CALLSHOT_HOME")
    yield check_folder("folder of the store", default_store(), "use --store")
    yield check_folder("this folder", Path.cwd(), "write results elsewhere, with --out")
    yield check_folder("temporary files", temporary, "set the variable TMPDIR")
    yield _check_threads()


def describe_version() -> list[str]:
    """Return lines: the version, then Python, extras and encoders that are ready."""
    ready = [spec.name for spec in list_specs() if not list_needs(spec)]
    return [
        f"callshot {__version__}",
        f"Python {_describe_python()}",
        f"extras installed: {', '.join(_split_extras()[0]) or 'none'}",
        f"encoders ready: {', '.join(ready)}",
    ]


def _describe_python() -> str:
    return f"{platform.python_version()}, {platform.system()} {platform.machine()}"


def _split_extras() -> tuple[list[str], list[str]]:
    """Return the extras that are installed, and those of which a module is missing."""
    present: list[str] = []
    absent: list[str] = []
    for extra, modules in EXTRAS.items():
        is_present = all(find_spec(name) is not None for name in modules)
        (present if is_present else absent).append(extra)
    return present, absent


def _check_packages() -> Iterator[Check]:
    """Look for the packages that callshot needs, and for those of encoders and formats."""
    versions = []
    missing = []
    for name in REQUIRED:
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        result = f"missing: {', '.join(missing)}"
        yield Check("packages", PROBLEM, result, "pip install -U callshot")
    else:
        yield Check("packages", GOOD, ", ".join(versions))
    present, absent = _split_extras()
    result = f"installed: {', '.join(present) or 'none'}"
    if not absent:
        yield Check("extras", GOOD, result)
        return
    advice = f"if you need them: pip install 'callshot[{','.join(absent)}]'"
    yield Check("extras", NOTE, f"{result}; not: {', '.join(absent)}", advice)


def _check_audio_formats() -> Check:
    """Write a tone in each format in memory, and read it again."""
    try:
        import soundfile
    except OSError as error:
        advice = "install libsndfile: apt install libsndfile1, brew install libsndfile"
        return Check("audio files", PROBLEM, error_reason(error), advice)
    tone = _make_tone()
    works: list[str] = []
    fails: list[str] = []
    for name, (container, coding) in AUDIO_FORMATS.items():
        buffer = io.BytesIO()
        signal = np.zeros(1)
        with suppress(soundfile.LibsndfileError, ValueError):
            soundfile.write(
                buffer, tone, TEST_RATE_HZ, format=container, subtype=coding
            )
            buffer.seek(0)
            signal, _ = soundfile.read(buffer, dtype="float32")
        is_same = abs(_loudness(signal) / _loudness(tone) - 1) < 0.1
        (works if is_same else fails).append(name)
    library = soundfile.__libsndfile_version__
    result = f"libsndfile {library} reads {', '.join(works) or 'nothing'}"
    if not fails:
        return Check("audio files", GOOD, result)
    advice = "pip install -U soundfile"
    return Check("audio files", PROBLEM, f"{result}; not {', '.join(fails)}", advice)


def _make_tone() -> np.ndarray:
    """Return half a second of a tone."""
    time_s = np.arange(TEST_RATE_HZ // 2) / TEST_RATE_HZ
    tone: np.ndarray = 0.5 * np.sin(2 * np.pi * TEST_TONE_HZ * time_s)
    return tone.astype(np.float32)


def _loudness(signal: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(signal))))


def _check_gpu() -> Check:
    """Ask torch and onnxruntime for a GPU; neither is needed."""
    result = []
    with suppress(ImportError, OSError):
        import torch

        if torch.cuda.is_available():
            result.append(f"torch uses {torch.cuda.get_device_name(0)}")
    with suppress(ImportError, OSError):
        providers = import_module("onnxruntime").get_available_providers()
        if "CUDAExecutionProvider" in providers:
            result.append("onnxruntime uses CUDA")
    if result:
        return Check("GPU", GOOD, "; ".join(result))
    if shutil.which("nvidia-smi") is None:
        return Check("GPU", GOOD, "none; everything runs on the CPU")
    advice = "install torch with CUDA, or onnxruntime-gpu, for --device cuda"
    return Check("GPU", NOTE, "there is one, but no package here can use it", advice)


def check_folder(subject: str, folder: Path, otherwise: str) -> Check:
    """Return whether files can be written to a folder, and how much space is left."""
    reason = why_not_writable(folder)
    if reason:
        return Check(subject, PROBLEM, f"{folder}: {reason}", otherwise)
    free_gb = shutil.disk_usage(find_existing(folder)).free / 1e9
    result = f"{folder}: {free_gb:.1f} GB free"
    if free_gb < MIN_FREE_GB:
        return Check(subject, NOTE, result, f"make space, or {otherwise}")
    return Check(subject, GOOD, result)


def _check_threads() -> Check:
    """Compare the cores that callshot would use with what limits them."""
    threads = default_threads()
    cores = os.cpu_count() or 1
    result = [
        f"{count_text(threads, 'thread')} by default on {count_text(cores, 'core')}"
    ]
    limit = read_cpu_limit(CGROUP_LIMIT)
    names = [name for name in THREAD_VARIABLES if name in os.environ]
    result += [f"{name} is {os.environ[name]}" for name in names]
    if limit is not None and limit < threads:
        result.append(f"this container may use {count_text(limit, 'core')}")
        advice = f"use --threads {max(1, int(limit))}"
        return Check("threads", NOTE, "; ".join(result), advice)
    return Check("threads", GOOD, "; ".join(result))


def read_cpu_limit(path: Path) -> float | None:
    """Return how many cores a container may use; None where nothing limits it."""
    try:
        quota, period = path.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return None
