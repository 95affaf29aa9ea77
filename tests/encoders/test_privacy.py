"""What encoders leave behind: their own files in their own folders, and no word to anybody. Each runs in a process."""

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
from callshot.encoders.weights.weight_files import find_weight
from callshot.study.file_steps import segment_files
from sounds import record

ROWS = ("mfcc", "random", "birdnet-v2.4", "hubert-base-l2", "perch-v2", "onnx")
STANDINS = {
    "hubert-base-l2": standins.hubert,
    "perch-v2": standins.perch_v2,
    "onnx": standins.perch_v2,
}
OWN = ("callshot", "out")  # CALLSHOT_HOME, and where the user wants the table
OTHERS = {"HOME": "home", "TMPDIR": "tmp"} | {
    f"XDG_{name}_HOME": name for name in ("CACHE", "CONFIG", "DATA", "STATE")
}
SEAL = (
    "unshare",
    "--user",
    "--map-root-user",
    "--net",
)  # no way out, and the kernel counts what found none

# Python tells what it opens, imports and connects to; what other code tried to send is counted where there is a seal.
WATCH = """
import json, os, sys
told = {"network": [], "written": [], "telemetry": [], "sent": 0}

def watch(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto", "socket.sendmsg"):
        told["network"].append(event)
    elif event == "open" and isinstance(given[0], str) and (given[2] or 0) & (os.O_WRONLY | os.O_RDWR):
        told["written"].append(os.path.abspath(given[0]))
    elif event == "import" and given[0].startswith("onnxruntime"):
        told["telemetry"].append(os.environ.get("ORT_DISABLE_TELEMETRY"))

sys.addaudithook(watch)
sealed, commands = json.loads(sys.argv[1])
"""
EMBED = """
from callshot.cli import main
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
TELL = """
if sealed:
    names, counts = (line.split() for line in open("/proc/self/net/snmp") if line.startswith("Ip:"))
    told["sent"] = int(dict(zip(names, counts))["OutNoRoutes"])
print(json.dumps(told), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def sealed():
    """Whether a process can be cut off from the network here."""
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*SEAL, "true"], check=False).returncode == 0
    )


@pytest.fixture
def rooms(tmp_path):
    """A fresh folder for everything that a process may think is its own, and one to be in."""
    folder = tmp_path / "rooms"
    for name in (*OWN, *OTHERS.values(), "here"):
        (folder / name).mkdir(parents=True)
    return folder


def watched(code, rooms, sealed, commands=()):
    """Run code among those rooms; return what it was seen to do, and the rooms that it must leave empty but did not."""
    own = {name: str(rooms / place) for name, place in OTHERS.items()} | {
        "CALLSHOT_HOME": str(rooms / "callshot")
    }
    kept = {
        name: os.environ[name]
        for name in ("PATH", "PYTHONPATH", "SYSTEMROOT")
        if name in os.environ
    }
    command = [sys.executable, "-B", "-c", WATCH + code + TELL, json.dumps([sealed, commands])]
    done = subprocess.run(
        [*SEAL, *command] if sealed else command,
        cwd=rooms / "here",
        env=kept | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    littered = [
        path for path in sorted(rooms.rglob("*")) if path.relative_to(rooms).parts[0] not in OWN
    ]
    return json.loads(done.stderr.splitlines()[-1]), [
        path for path in littered if path.parent != rooms
    ]


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    for n in range(2):
        record(folder / f"r{n}.wav", seconds=8, rate=16000, seed=n)
    rows = "".join(f"r{n % 2}.wav,{n},{n + 1.5},label {n % 2}\n" for n in range(6))
    (folder / "calls.csv").write_text("recording,start_s,end_s,label\n" + rows)
    segment_files(folder, folder / "segments", folder / "calls.csv")
    return folder / "segments" / "segments.parquet"


def commands(name, cut, rooms, tmp_path):
    """Return what a user types: get the weights, where there are any, and embed with sequences."""
    if name in STANDINS:
        pytest.importorskip("onnxruntime")
        weight = STANDINS[name](tmp_path / "model.onnx")
    else:
        spec = find_encoder(name)
        weight = find_weight(spec.weights_name, spec.weights[0]) if spec.weights else None
        if spec.weights and weight is None:
            pytest.skip(f"the weights of {name} are not here: callshot encoders get {name}")
    embed = [
        "embed",
        str(cut),
        "-o",
        str(rooms / "out" / "table.parquet"),
        "--sequence",
        "--quiet",
        "-e",
    ]
    if name == "onnx":
        given = ("rate_hz=32000", "window_s=5", "dimension=1536", "output=embedding")
        return [
            [*embed, f"onnx:{weight}", *(word for choice in given for word in ("--set", choice))]
        ]
    get = [] if weight is None else [["encoders", "get", name, "--from", str(weight), "--quiet"]]
    return [*get, ["encoders"], ["encoders", "check", name], [*embed, name]]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_writes_to_its_own_folders_alone_and_sends_nothing(
    name, cut, rooms, tmp_path, sealed
):
    told, littered = watched(EMBED, rooms, sealed, commands(name, cut, rooms, tmp_path))
    assert (rooms / "out" / "table.parquet").exists()
    assert littered == []
    assert (told["network"], told["sent"]) == ([], 0)
    package = Path(
        callshot.__file__
    ).parent  # numba tries whether it could keep compiled kernels beside their source
    allowed = tuple(
        str(place) for place in (package, "/dev/", *(rooms / own for own in (*OWN, "tmp")))
    )
    assert [path for path in told["written"] if not path.startswith(allowed)] == []
    assert told["telemetry"][:1] == (["1"] if name in STANDINS else [])


def test_what_is_written_or_sent_elsewhere_is_seen(rooms, sealed):
    told, littered = watched(MISBEHAVE, rooms, sealed)
    assert littered == [rooms / "home" / "note"]
    assert told["written"] == [str(rooms / "home" / "note")]
    assert told["network"] == ["socket.getaddrinfo", "socket.connect"]
    assert told["sent"] == (2 if sealed else 0)
