"""Encoders write to their own folders only and use no network; each one runs in a process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import callshot
import standins
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.weights import find_weight
from callshot.study.file_steps import segment_files
from sounds import record

NAMES = ("birdnet-v2.4", "perch-v2")
STANDINS = {"perch-v2": standins.perch_v2}
TESTS = Path(__file__).parents[1]
ALLOWED = ("callshot", "out")  # CALLSHOT_HOME, and the folder of the table
FORBIDDEN = {"HOME": "home", "TMPDIR": "tmp"} | {
    f"XDG_{name}_HOME": name for name in ("CACHE", "CONFIG", "DATA", "STATE")
}
# Without a network; the kernel counts the packets that found no route.
SEAL = ("unshare", "--user", "--map-root-user", "--net")

# Python reports what it opens, imports and connects to; packets of other code are counted by the
# kernel.
WATCH = """
import json, os, sys
NETWORK = ("connect", "getaddrinfo", "gethostbyname", "sendto", "sendmsg")
NETWORK = [f"socket.{name}" for name in NETWORK]
WRITING = os.O_WRONLY | os.O_RDWR
events = {"network": [], "written": [], "telemetry": [], "sent": 0}

def watch(event, arguments):
    if event in NETWORK:
        events["network"].append(event)
    elif event == "open" and isinstance(arguments[0], str):
        if (arguments[2] or 0) & WRITING:
            events["written"].append(os.path.abspath(arguments[0]))
    elif event == "import" and arguments[0].startswith("onnxruntime"):
        events["telemetry"].append(os.environ.get("ORT_DISABLE_TELEMETRY"))

sys.addaudithook(watch)
sealed, commands, tests = json.loads(sys.argv[1])
"""
EMBED = """
sys.path.insert(0, tests)
import standins
from callshot.cli import main
from callshot.encoders import catalogue
catalogue.ENCODERS = standins.unpinned("perch-v2")
for words in commands:
    sys.argv = ["callshot", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, words
"""
MISBEHAVE = """
import ctypes, socket
open(os.path.expanduser("~/note"), "w").close()
try:
    socket.create_connection(("192.0.2.1", 80), 0.1)
except OSError:
    pass
if sealed:
    plain = socket.socket()
    ctypes.CDLL(None).connect(plain.fileno(), bytes([2, 0, 0, 80, 192, 0, 2, 1]) + bytes(8), 16)
"""
REPORT = """
if sealed:
    names, counts = (line.split() for line in open("/proc/self/net/snmp") if line.startswith("Ip:"))
    events["sent"] = int(dict(zip(names, counts))["OutNoRoutes"])
print(json.dumps(events), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def sealed():
    """Whether a process can run without a network here."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*SEAL, "true"], check=False).returncode == 0
    )


@pytest.fixture
def folders(tmp_path):
    """An empty folder for each place that a process may write to, and a working folder."""
    folder = tmp_path / "folders"
    for name in (*ALLOWED, *FORBIDDEN.values(), "here"):
        (folder / name).mkdir(parents=True)
    return folder


def run_watched(code, folders, sealed, commands=()):
    """Run code; return its events, and the files in folders that must stay empty."""
    environment = {name: str(folders / place) for name, place in FORBIDDEN.items()}
    environment["CALLSHOT_HOME"] = str(folders / "callshot")
    for name in ("PATH", "PYTHONPATH", "SYSTEMROOT"):
        environment |= {name: os.environ[name]} if name in os.environ else {}
    arguments = json.dumps([sealed, commands, str(TESTS)])
    command = [sys.executable, "-B", "-c", WATCH + code + REPORT, arguments]
    process = subprocess.run(
        [*SEAL, *command] if sealed else command,
        cwd=folders / "here",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    unexpected = []
    for path in sorted(folders.rglob("*")):
        folder, *rest = path.relative_to(folders).parts
        if folder not in ALLOWED and rest:
            unexpected.append(path)
    return json.loads(process.stderr.splitlines()[-1]), unexpected


@pytest.fixture(scope="module")
def segments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    for n in range(2):
        record(folder / f"r{n}.wav", seconds=8, rate=16000, seed=n)
    rows = "".join(f"r{n % 2}.wav,{n},{n + 1.5},label {n % 2}\n" for n in range(6))
    (folder / "calls.csv").write_text("recording,start_s,end_s,label\n" + rows)
    segment_files(folder, folder / "segments", folder / "calls.csv")
    return folder / "segments" / "segments.parquet"


def commands(name, segments, folders, tmp_path):
    """Return the commands of a user: get the weights, check, and embed."""
    if name in STANDINS:
        pytest.importorskip("onnxruntime")
        weight = STANDINS[name](tmp_path / "model.onnx")
    else:
        spec = find_encoder(name)
        weight = find_weight(spec.weights_name, spec.weights[0])
        if weight is None:
            pytest.skip(f"no weights of {name}: callshot encoders get {name}")
    get = ["encoders", "get", name, "--from", str(weight), "--quiet"]
    embed = ["embed", str(segments), "-e", name, "--sequence", "--quiet", "-o"]
    table = str(folders / "out" / "table.parquet")
    return [get, ["encoders", "check", name], [*embed, table]]


@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_writes_to_its_own_folders_and_sends_nothing(
    name, segments, folders, tmp_path, sealed
):
    events, unexpected = run_watched(
        EMBED, folders, sealed, commands(name, segments, folders, tmp_path)
    )
    assert (folders / "out" / "table.parquet").exists()
    assert unexpected == []
    assert (events["network"], events["sent"]) == ([], 0)
    # numba tests whether it can cache compiled kernels beside their source.
    package = Path(callshot.__file__).parent
    places = [package, "/dev/", *(folders / name for name in (*ALLOWED, "tmp"))]
    allowed = tuple(str(place) for place in places)
    assert [path for path in events["written"] if not path.startswith(allowed)] == []
    assert events["telemetry"][:1] == (["1"] if name in STANDINS else [])


def test_the_watch_sees_other_files_and_network_use(folders, sealed):
    events, unexpected = run_watched(MISBEHAVE, folders, sealed)
    assert unexpected == [folders / "home" / "note"]
    assert events["written"] == [str(folders / "home" / "note")]
    assert events["network"] == ["socket.getaddrinfo", "socket.connect"]
    assert events["sent"] == (2 if sealed else 0)
