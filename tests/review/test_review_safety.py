import json
import logging
import socket
import threading
from itertools import product

import numpy as np
import pytest
import soundfile

from callshot.errors import InputError
from callshot.review import web
from callshot.review.sound import RecordingFiles
from callshot.review.web_safety import Access, read_address, write_address
from served_review import TOKEN, serve


@pytest.fixture(scope="module")
def served(scan, tmp_path_factory):
    with serve(scan, tmp_path_factory.mktemp("safety") / "review") as pair:
        yield pair


def send_raw(port, text):
    """Return the first line that the server answers to bytes as they are."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(text)
        return connection.recv(65536).decode("latin-1").partition("\r\n")[0]


def post_head(port):
    """Return the start of a request of the page, up to its length."""
    host = f"127.0.0.1:{port}"
    return (
        f"POST /api/labels HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
        f"Cookie: callshot_review_{port}={TOKEN}\r\nContent-Type: application/json\r\n"
    )


PATHS = [
    "/api/session",
    "/api/queue?order=time",
    "/api/items?ids=0",
    "/api/sound?item=0",
    "/api/spectrogram?item=0",
    "/api/export/csv",
    "/api/changes?after=0",
    "/",
    "/assets/index.html",
]


FOREIGN = [
    {"Cookie": None},
    {"Cookie": "callshot_review=x"},
    {"Host": "evil.example"},
    {"Host": "evil.example:{port}"},
    {"Host": "127.0.0.1.evil.example:{port}"},
    {"Host": "user@127.0.0.1:{port}"},
    {"Host": "127.0.0.1:1"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "https://127.0.0.1:{port}"},
]


def test_whoever_is_not_our_page_gets_nothing(served):
    client, review = served
    for path, headers in product(PATHS, FOREIGN):
        ((name, value),) = headers.items()
        sent = {name: value and value.format(port=client.port)}
        status, _, content = client.ask("GET", path, headers=sent)
        assert status == 403, (path, headers)
        assert list(json.loads(content)) == ["error"]
    before = review.seq
    body = {"decisions": [{"uuid": "0" * 32, "item": 0, "action": "confirm"}]}
    for headers, expected in (
        ({"Origin": None}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
        ({"Cookie": None}, 403),
    ):
        status, _, _ = client.ask("POST", "/api/decisions", body, headers)
        assert status == expected, headers
        assert review.seq == before


def test_a_request_without_a_host_or_with_two_is_refused(served):
    client, _ = served
    cookie = f"Cookie: callshot_review_{client.port}={TOKEN}\r\n"
    for hosts in ("", f"Host: 127.0.0.1:{client.port}\r\nHost: evil\r\n"):
        text = f"GET /api/session HTTP/1.1\r\n{hosts}{cookie}\r\n".encode()
        assert send_raw(client.port, text).split()[1] in ("400", "403")


def test_the_printed_address_signs_in_and_hides_the_token(served):
    client, _ = served
    path = f"/?token={TOKEN}&reviewer=Zo%C3%AB"
    status, headers, _ = client.ask("GET", path, headers={"Cookie": None})
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    status, headers, _ = client.ask("GET", "/?token=guess", headers={"Cookie": None})
    assert status == 403
    assert "set-cookie" not in headers
    path = f"/?token={TOKEN}&reviewer=%00"
    assert client.ask("GET", path, headers={"Cookie": None})[0] == 400
    connection = client.as_person("Zoë")
    assert connection.get("/api/session")["reviewer"] == "Zoë"


ODD_ADDRESSES = [
    "/assets/../web.py",
    "/assets/..%2fweb.py",
    "/assets/%2e%2e/web.py",
    "/assets/%2e%2e%2f%2e%2e%2fcli%2fapp.py",
    "/assets//etc/passwd",
    "/assets/%2fetc%2fpasswd",
    "/assets/..\\web.py",
    "/assets/index.html%00.js",
    "/../../../../etc/passwd",
    "/api/export/..%2f..%2fetc%2fpasswd",
    "/api/sound?item=../../etc/passwd",
    "/api/sound?recording=/etc/passwd",
    "/api/sound?item=-1",
    "/api/sound?item=99999999999999999999",
    "/api/sound?item=0&start_s=nan",
    "/api/sound?item=0&speed=30",
    "/api/sound?item=0&before=1e9",
    "/api/spectrogram?item=0&width=100000&height=100000",
    "/api/spectrogram?item=0&width=0",
    "/api/spectrogram?item=0&window_s=0",
    "/api/spectrogram?item=0&scale=mel",
    "/api/spectrogram?item=0&range_db=0",
    "/api/spectrogram?item=0&colours=jet",
    "/api/items?ids=" + ",".join(["1"] * 201),
    "/api/items?ids=1,x",
    f"/api/items?ids={'9' * 5000}",
    f"/api/items/{'9' * 5000}/examples",
    "/api/items/x/examples",
    "/api/queue?order=worst",
    "/api/queue?state=any",
    "/api/queue?limit=1e9",
    f"/api/queue?order=time&offset={'0' * 15}{'9' * 15}",
]


def test_odd_addresses_get_one_sentence(served):
    client, _ = served
    for path in ODD_ADDRESSES:
        status, headers, content = client.ask("GET", path)
        assert status in (400, 404), path
        assert headers["content-type"] == "application/json"
        assert list(json.loads(content)) == ["error"]


@pytest.mark.parametrize(
    "name", ["../secret.wav", "/tmp/secret.wav", "link.wav", "in/secret.wav", "a\0.wav"]
)
def test_no_recording_outside_its_folder_is_read(tmp_path, name):
    root = tmp_path / "recordings"
    root.mkdir()
    soundfile.write(tmp_path / "secret.wav", np.zeros(100), 8000)
    (root / "link.wav").symlink_to(tmp_path / "secret.wav")
    (root / "in").symlink_to(tmp_path)
    if name.startswith("/"):
        name = str(tmp_path / "secret.wav")
    with pytest.raises(InputError, match="outside"):
        RecordingFiles({name: root}).read(name, 0.0, 1.0)


def test_a_link_inside_the_folder_is_read(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(8000), 8000)
    (tmp_path / "b.wav").symlink_to(tmp_path / "a.wav")
    assert RecordingFiles({"b.wav": tmp_path}).read("b.wav", 0.0, 1.0).end_s == 1.0


def test_every_answer_has_a_policy_without_inline_code(served):
    client, _ = served
    for path in ("/", "/api/session", "/api/sound?item=0", "/nothing"):
        headers = client.ask("GET", path)[1]
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


def decide(action, item=0, uuid="0" * 32, **more):
    """Return a body with one decision."""
    return {"decisions": [{"uuid": uuid, "item": item, "action": action, **more}]}


BAD_BODIES = [
    [],
    {},
    {"decisions": "x"},
    {"decisions": []},
    {"decisions": [3]},
    decide("confirm", uuid="x"),
    decide("confirm", item="0"),
    decide("confirm", item=True),
    decide("delete"),
    decide("relabel"),
    decide("relabel", label="new"),
    decide("relabel", label=["hoot"]),
    decide("span", start_s=1),
    decide("span", start_s=-1, end_s=2),
    decide("span", start_s=0, end_s=10**400),  # a whole number that is no float
    decide("span", start_s=-(10**400), end_s=1),
    decide("split", at_s=1e9),
    decide("split", at_s=10**400),
    {"decisions": decide("skip")["decisions"] * 2},
]


def test_decisions_that_are_none_are_refused_and_nothing_is_saved(served):
    client, review = served
    before = review.seq
    good = decide("skip", uuid="1" * 32)["decisions"]
    for body in BAD_BODIES:
        answer = client.post("/api/decisions", body, 400)
        assert list(answer) == ["error"]
        if body and isinstance(body["decisions"], list) and body["decisions"]:
            both = {"decisions": good + body["decisions"]}
            client.post("/api/decisions", both, 400)
        assert review.seq == before


def test_a_body_that_is_too_long_or_no_json_is_refused(served):
    client, _ = served
    client.post("/api/labels", {"name": "x" * 2**20}, 400)
    client.post("/api/labels", {"name": "x" * 300}, 400)
    client.post("/api/labels", {"name": "a\nb"}, 400)
    client.post("/api/reviewer", {"name": ""}, 400)
    text = post_head(client.port) + "Content-Length: 3\r\n\r\n{x}"
    assert send_raw(client.port, text.encode()).split()[1] == "400"


def test_a_request_that_breaks_off_prints_nothing(served, caplog):
    client, _ = served
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    text = post_head(client.port) + "Content-Length: 100\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", client.port)) as connection:
        connection.sendall(text.encode())
        client.get("/api/session")
    for _ in range(5):
        client.get("/api/session")
    logger.removeHandler(caplog.handler)
    assert caplog.messages == []


def test_other_hosts_are_known_by_address_only():
    access = Access("t", "0.0.0.0", 80, "ada")
    assert access.is_own_host("192.168.1.5:80")
    assert access.is_own_host("[fe80::1]:80")
    assert not access.is_own_host("evil.example:80")
    assert not Access("t", "127.0.0.1", 80, "ada").is_own_host("192.168.1.5:80")


def test_the_token_is_kept_for_its_owner_only(tmp_path):
    port, token = read_address(tmp_path)
    assert port is None
    write_address(tmp_path, 1234, token)
    path = tmp_path / "address.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_address(tmp_path) == (1234, token)
    for mode in (0o644, 0o640, 0o606):  # others could have read it
        path.chmod(mode)
        port, other = read_address(tmp_path)
        assert port is None
        assert other != token
    path.chmod(0o600)
    path.write_text('{"port": 1, "token": "short"}')
    assert read_address(tmp_path)[1] not in ("short", token)


def test_a_page_that_waits_is_answered_when_another_one_decides(served, monkeypatch):
    client, review = served
    answers = []

    def wait():
        answers.append(client.get(f"/api/changes?after={review.seq}"))

    thread = threading.Thread(target=wait)
    thread.start()
    client.as_person("bob").decide(7, "skip")
    thread.join(20)
    assert answers[0]["items"] in ([7], [])
    monkeypatch.setattr(web, "MAX_POLL_S", 0.2)
    assert client.get(f"/api/changes?after={review.seq}")["items"] == []


def test_odd_cookies_of_other_servers_do_not_lock_us_out(served):
    client, _ = served
    own = f"callshot_review_{client.port}={TOKEN}"
    for other in ('a={"x": "y z"}', "theme[dark]=1", "x", "=", 'a="', "a=b=c"):
        for cookies in (f"{other}; {own}", f"{own}; {other}"):
            headers = {"Cookie": cookies}
            status, _, _ = client.ask("GET", "/api/queue?order=time", headers=headers)
            assert status == 200, other


def test_bands_that_no_filter_has_are_still_played(served):
    client, _ = served
    bands = "low_hz=1e-300 low_hz=0.000001 high_hz=1e-9 high_hz=1e-320"
    bands += " low_hz=1000&high_hz=1000.0000001 low_hz=7999.9999999"
    for band in bands.split():
        assert client.ask("GET", f"/api/sound?item=0&{band}")[0] == 200, band
