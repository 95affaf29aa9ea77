"""The files of the page: hashes of third-party files, no code that a policy would stop."""

import hashlib
import re
from pathlib import Path

import callshot.review

ASSETS = Path(callshot.review.__file__).with_name("assets")
OWN = sorted(path for path in ASSETS.glob("*.js") if "wavesurfer" not in path.name)


def test_third_party_files_are_those_that_are_noted():
    noted = re.findall(
        r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$",
        (ASSETS / "THIRD-PARTY.md").read_text(),
        re.MULTILINE,
    )
    assert sorted(name for name, _ in noted) == sorted(
        path.name for path in ASSETS.glob("wavesurfer*")
    )
    for name, checksum in noted:
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == checksum
    assert "Redistributions" in (ASSETS / "wavesurfer.LICENSE.txt").read_text()


def test_nothing_is_inline_and_nothing_comes_from_elsewhere():
    page = (ASSETS / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>|https?://", page)
    for path in OWN:
        code = path.read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(", code)
        addresses = set(re.findall(r"https?://[^\"'` ]+", code))
        assert addresses <= {"http://www.w3.org/2000/svg"}


def test_every_import_is_there():
    names = {path.name for path in ASSETS.iterdir()}
    for path in OWN:
        code = path.read_text()
        assert set(re.findall(r'from "\./([^"]+)"', code)) <= names
