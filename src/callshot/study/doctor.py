"""What this machine has → a list of checks: what was found, and what to do about it.

Nothing is written except a nameless file in each folder that is tried, which is gone at once.
"""

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

from callshot.encoders.catalogue import ENCODERS, list_specs
from callshot.encoders.embed import default_store
from callshot.encoders.install import list_needs
from callshot.encoders.weights import TORCH_EXTRA, TORCH_PACKAGES
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
# The modules that each extra of the package brings; those of encoders are in the catalogue.
EXTRAS = {
    **{spec.extra: spec.packages for spec in ENCODERS if spec.extra is not None},
    TORCH_EXTRA: TORCH_PACKAGES,
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
    result  what was found
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
    """Return the lines of --version: callshot, Python, extras, and encoders that are ready."""
    ready = [spec.name for spec in list_specs() if not list_needs(spec)]
    return [
        f"callshot {__version__}",
        f"Python {_describe_python()}",
        f"extras installed: {', '.join(_find_extras()) or 'none'}",
        f"encoders ready: {', '.join(ready)}",
    ]


def _describe_python() -> str:
    """Return the version of Python, the operating system and the processor."""
    return f"{platform.python_version()}, {platform.system()} {platform.machine()}"


def _find_extras() -> list[str]:
    """Return the extras whose modules are all installed."""
    return [name for name, modules in EXTRAS.items() if all(map(find_spec, modules))]


def _check_packages() -> Iterator[Check]:
    """Look for the packages that callshot needs, and for its extras, which only some users need."""
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
    present = _find_extras()
    absent = [name for name in EXTRAS if name not in present]
    result = f"installed: {', '.join(present) or 'none'}"
    if not absent:
        yield Check("extras", GOOD, result)
        return
    advice = f"if you need them: pip install 'callshot[{','.join(absent)}]'"
    yield Check("extras", NOTE, f"{result}; not: {', '.join(absent)}", advice)


def _check_audio_formats() -> Check:
    """Ask libsndfile for the formats that it was built with."""
    try:
        import soundfile
    except OSError as error:
        advice = "install libsndfile: apt install libsndfile1, brew install libsndfile"
        return Check("audio files", PROBLEM, error_reason(error), advice)
    missing = [
        name
        for name, (container, coding) in AUDIO_FORMATS.items()
        if not soundfile.check_format(container, coding)
    ]
    works = [name for name in AUDIO_FORMATS if name not in missing]
    library = soundfile.__libsndfile_version__
    result = f"libsndfile {library} reads {', '.join(works) or 'nothing'}"
    if not missing:
        return Check("audio files", GOOD, result)
    advice = "pip install -U soundfile"
    return Check("audio files", PROBLEM, f"{result}; not {', '.join(missing)}", advice)


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
    """Check whether a folder can be written to and has space; `otherwise` is the advice if not."""
    reason = why_not_writable(folder)
    if reason:
        return Check(subject, PROBLEM, f"{folder}: {reason}", otherwise)
    free_gb = shutil.disk_usage(find_existing(folder)).free / 1e9
    result = f"{folder}: {free_gb:.1f} GB free"
    if free_gb < MIN_FREE_GB:
        return Check(subject, NOTE, result, f"make space, or {otherwise}")
    return Check(subject, GOOD, result)


def _check_threads() -> Check:
    """Compare the threads that callshot would use with the cores that a container may use.

    The result also names environment variables that limit threads.
    """
    threads = default_threads()
    cores = os.cpu_count() or 1
    result = [
        f"{count_text(threads, 'thread')} by default on {count_text(cores, 'core')}"
    ]
    core_limit = read_cpu_limit(CGROUP_LIMIT)
    names = [name for name in THREAD_VARIABLES if name in os.environ]
    result += [f"{name} is {os.environ[name]}" for name in names]
    if core_limit is not None and core_limit < threads:
        result.append(f"this container may use {count_text(core_limit, 'core')}")
        advice = f"use --threads {max(1, int(core_limit))}"
        return Check("threads", NOTE, "; ".join(result), advice)
    return Check("threads", GOOD, "; ".join(result))


def read_cpu_limit(path: Path) -> float | None:
    """Return how many cores a container may use, by the file `cpu.max` of its control group.

    None where nothing limits it.
    """
    try:
        quota, period = path.read_text(encoding="ascii").split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return None
