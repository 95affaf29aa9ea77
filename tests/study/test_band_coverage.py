"""What encoders get of calls is measured on recordings, before anything is embedded."""

import numpy as np
import polars as pl
import pytest
import soundfile
from typer.testing import CliRunner

from callshot.cli import app
from callshot.corpus.options import SegmentationOptions
from callshot.encoders.band_coverage import measure_coverage
from callshot.errors import OptionError
from callshot.study.file_steps import segment_files
from test_cli import run

RECORDING_HZ = 48000


@pytest.fixture
def segments(tmp_path):
    """Two tones in each recording, at 200 Hz and 12 kHz, of which segments have the first."""
    time_s = np.arange(4 * RECORDING_HZ) / RECORDING_HZ
    tones = np.sin(2 * np.pi * 200 * time_s) + np.sin(2 * np.pi * 12000 * time_s)
    for n in range(2):
        soundfile.write(tmp_path / f"{n}.wav", 0.4 * tones, RECORDING_HZ)
    rows = "".join(f"{n}.wav,0.5,3.5,call {n}\n" for n in range(2))
    (tmp_path / "calls.csv").write_text(f"recording,start_s,end_s,label\n{rows}")
    segment_files(
        tmp_path,
        tmp_path / "segments",
        tmp_path / "calls.csv",
        options=SegmentationOptions(rate_hz=16000),
    )
    return tmp_path / "segments" / "segments.parquet"


def test_the_energy_in_each_band_is_that_of_the_recording(segments):
    coverage = measure_coverage(segments, ["birdnet-v2.4"], [1, 4])
    table = coverage.table
    assert table["speed"].to_list() == [1, 2, 4]
    assert table["auto"].to_list() == [False, True, True]
    # Neither band has 12 kHz, because the segments end at 8 kHz
    assert table["energy"].to_list() == pytest.approx([0, 0, 0.5], abs=0.02)
    assert table["windows"].to_list() == [1, 1, 1]
    assert table["padding"].to_list() == pytest.approx([0, 0.5, 0.75])
    assert coverage.lost == pytest.approx(0.5, abs=0.02)
    first, second = coverage.describe()
    assert first.startswith("2 calls, of 3 s (median)")
    assert first.endswith(
        " is at 198 Hz"
    )  # as in the segments, which speed=auto measures
    assert second == (
        "50% of the energy is above 8,000 Hz, which segments at 16,000 Hz do not have: "
        "cut them with a higher --rate-hz"
    )


def test_the_command_prints_a_table_and_writes_a_picture(segments, capsys):
    run("encoders", "coverage", segments, "-e", "mfcc", "--speeds", "1,2")
    lines = capsys.readouterr().out.splitlines()
    headings = "encoder speed band energy windows padding"
    assert lines[0].split() == headings.split()
    assert any(line.startswith("mfcc") for line in lines)
    folder = segments.parent
    assert pl.read_csv(folder / "band-coverage.csv")["encoder"].unique().to_list() == [
        "mfcc"
    ]
    assert (folder / "band-coverage.png").stat().st_size > 1000
    assert (folder / "band-coverage.pdf").exists()


@pytest.mark.parametrize("text", ["fast", "0", "1,1000"])
def test_a_wrong_speed_is_an_error(tmp_path, text):
    words = ["encoders", "coverage", str(tmp_path / "segments.parquet")]
    result = CliRunner().invoke(app, [*words, "--speeds", text])
    assert isinstance(result.exception, OptionError)
    assert str(result.exception).startswith("--speeds: expected")
