"""The documentation: pages made from the code, and a reference that names what exists."""

import hashlib
import sys
from pathlib import Path

import pytest

from callshot.options import STUDY_TABLES, list_options
from callshot.records import frames

DOCS = Path(__file__).parents[1] / "docs"
pytestmark = pytest.mark.skipif(
    not DOCS.exists(), reason="the documentation is not installed"
)


@pytest.fixture(scope="module")
def generated():
    sys.path.insert(0, str(DOCS))
    try:
        import generated_pages

        yield generated_pages
    finally:
        sys.path.remove(str(DOCS))


def test_the_page_of_options_has_every_command_and_key_with_its_options(generated):
    page = generated.make_pages()["options.md"]
    names = [name for name, _ in generated.list_commands()]
    assert {"run", "scan", "encoders get", "doctor"} <= set(names)
    for name in names:
        assert f"## callshot {name}\n" in page
    assert "`--false-alarms`" in page
    of_study = page.partition("## study.toml")[2]
    for classes in STUDY_TABLES.values():
        for key in list_options(*classes):
            assert f"| `{key}` |" in of_study


def test_pages_list_every_schema_public_function_encoder_and_format(generated):
    pages = generated.make_pages()
    for column in frames.EVENTS:
        assert f"| `{column}` |" in pages["columns.md"]
    assert "## crossovers\n" in pages["columns.md"]
    assert "::: callshot.api.evaluate\n" in pages["python.md"]
    assert "::: callshot.fewshot.centroid.CentroidClassifier" in pages["python.md"]
    for name in ("mfcc", "birdnet-v2.4", "textgrid", "csv", "kaleidoscope"):
        assert f"| `{name}` |" in pages["registries.md"]
    assert "(2021): BirdNET" in pages["registries.md"]


def test_pages_link_to_no_file_outside_the_site(generated):
    text = "see [examples/a.py](../examples/a.py) and [here](how-to.md)"
    shown = generated.on_page_markdown(text)
    assert shown == "see `examples/a.py` and [here](how-to.md)"
    page = generated.on_post_page(f'<script src="{generated.SEARCH_ADDRESS}"></script>')
    assert page == f'<script src="{generated.SEARCH_FILE}"></script>'


def test_the_script_of_the_search_is_unchanged(generated):
    content = (DOCS / generated.SEARCH_FILE).read_bytes()
    assert hashlib.sha256(content).hexdigest() == generated.SEARCH_SHA256
