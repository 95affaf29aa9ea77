"""The study file: its keys, and the errors that are found before any work begins."""

import pytest

from callshot.errors import InputError, OptionError
from callshot.options import DisplayOptions
from callshot.study.study_file import read_study

WHOLE = """
title = "elephants of Amboseli"
out = "found"
store = "kept"
device = "cpu"

[corpus.amboseli]
audio = "recordings"
annotations = "tables"
format = "raven"
columns = { label = "Call type" }
tiers = ["calls"]
known = "ldc2010s05"
min_length_s = 0.5
channel = 1
folds = 3
fold_file = "folds.csv"
categories = "categories.csv"

[corpus.samburu]
audio = "recordings"
normalise = false

[[encoder]]
name = "mfcc"

[[encoder]]
name = "mfcc"
n_fft = 512

[protocol]
shots = "1-3,10"
draws = 20
seed = 7
spread = "shared"

[baselines]
references = "baselines.csv"

[report]
shots = [3, 1]
confusion = [2]
"""


@pytest.fixture
def folder(tmp_path):
    for name in ("recordings", "tables"):
        (tmp_path / name).mkdir()
    for name in ("folds.csv", "categories.csv", "baselines.csv"):
        (tmp_path / name).touch()
    return tmp_path


def study(folder, text):
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return path


MINIMAL = '[corpus.c]\naudio = "recordings"\n[[encoder]]\nname = "mfcc"\n'


def test_a_study_can_ask_for_a_target(folder):
    asked = read_study(study(folder, MINIMAL + "[report]\ntarget = 0.8"))
    assert asked.report.target == 0.8
    assert read_study(study(folder, MINIMAL)).report.target is None


def test_every_key_reaches_its_field(folder):
    content = read_study(study(folder, WHOLE))
    one, two = content.corpora
    assert (content.report.title, content.out, content.store, content.device) == (
        "elephants of Amboseli",
        folder / "found",
        folder / "kept",
        "cpu",
    )
    assert (one.audio, one.reading["annotations"], one.reading["format"]) == (
        folder / "recordings",
        folder / "tables",
        "raven",
    )
    assert (
        one.reading["annotation_options"].columns,
        one.reading["annotation_options"].tiers,
    ) == (
        {"label": "Call type"},
        ("calls",),
    )
    assert (
        one.reading["options"].min_length_s,
        one.reading["options"].channel,
        one.reading["options"].collar_s,
    ) == (0.5, "1", 0.25)
    assert (one.folds, one.fold_file, one.categories) == (
        3,
        folder / "folds.csv",
        folder / "categories.csv",
    )
    assert two.reading["options"].peak_dbfs is None
    assert two.reading["options"].min_length_s == 0.0
    assert [encoder.title for encoder in content.encoders] == [
        "mfcc",
        "mfcc[n_fft=512]",
    ]
    assert (content.protocol.shots, content.protocol.draws, content.protocol.seed) == (
        (1, 2, 3, 10),
        20,
        7,
    )
    assert content.protocol.spreads == ("shared",)
    assert (content.references, content.report.shots, content.report.confusion) == (
        folder / "baselines.csv",
        (1, 3),
        (2,),
    )


def test_the_smallest_study_has_the_papers_protocol(folder):
    content = read_study(study(folder, MINIMAL))
    assert content.protocol.shots == tuple(range(1, 41))
    assert (content.report.title, content.out, content.report.shots) == (
        folder.name,
        folder / "results",
        DisplayOptions().shots,
    )
    assert content.work == folder / ".callshot" / "study"


def test_a_file_with_a_byte_order_mark_is_read(folder):
    path = folder / "study.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert len(read_study(path).corpora) == 1


CORPUS = "[corpus.c]"
# What is added to the smallest study, and the error.
ADDED = {
    "[protocol]\nseedz = 1": r"\[protocol\] seedz: unknown key; did you mean seed\?",
    "[protocol]\nseed = '1'": r"\[protocol\] seed: expected a whole number, got '1'",
    "[protocol]\nseed = true": r"\[protocol\] seed: expected a whole .*, got True",
    "[protocol]\nshots = '0-3'": r"\[protocol\] shots: expected 1 or more",
    "[protocol]\nspread = 'both'": (
        r"\[protocol\] spread: expected one of all, total, shared, per-query, got 'both'"
    ),
    "[report]\ntarget = 80": r"\[report\] target: expected a score above 0 .* got 80",
    "[protocol]\nspread = 'shared'\n[report]\ntarget = 0.8": (
        r"\[report\] target: needs the spread total"
    ),
    "[report]\nshots = [0]": r"\[report\] shots: expected whole numbers from 1",
    "[report]\nshots = [true]": r"\[report\] shots: expected whole numbers from 1",
    "[baselines]\nreferences = 'gone.csv'": (
        r"\[baselines\] references: .*gone.csv does not exist"
    ),
    'bands = "x"': r"\[\[encoder\]\] 1: .*bands: expected a value like 128",
    '[[encoder]]\nname = "mfcc"': r"\[\[encoder\]\]: mfcc is given twice",
    '[corpus.C]\naudio = "recordings"': r"\[corpus.C\]: differs from c only in case",
}
# What is replaced in the smallest study, by what, and the error.
REPLACED = [
    ("audio", "adio", r"\[corpus.c\] adio: unknown key; did you mean audio\?"),
    ('"mfcc"', '"mfc"', r"\] 1: encoder: unknown name 'mfc'; did you mean mfcc\?"),
    ("recordings", "gone", r"\[corpus.c\] audio: .*gone does not exist; paths are"),
    (CORPUS, '[corpus."a/b"]', r"\[corpus.a/b\]: the name becomes a folder"),
    (CORPUS, "[corpus.Tables]", r"\[corpus.Tables\]: the name becomes a folder"),
    (CORPUS, f"{CORPUS}\nmin_length_s = -1", r"\[corpus.c\] min_length_s: expected 0"),
    (CORPUS, f"{CORPUS}\nfolds = 1", r"\[corpus.c\] folds: expected 2 or more, got 1"),
    (CORPUS, f"{CORPUS}\nknown = 'ldc'", r"\[corpus.c\] corpus: expected one of"),
    ("recordings", "~nobody-here/x", r"audio: '~nobody-here/x' is not a path"),
    ("recordings", "x" * 5000, r"\[corpus.c\] audio: .* cannot be reached"),
    (
        CORPUS,
        f"{CORPUS}\nnormalise = false\npeak_dbfs = -3.0",
        "peak_dbfs: has no effect",
    ),
]
WHOLE_TEXTS = {
    "titel = 'x'\n" + MINIMAL: r"study.toml: titel: unknown key; did you mean title\?",
    'out = "a\\u0000b"\n' + MINIMAL: "out: .* is not a path",
    "x = " + "[" * 5000: "study.toml: not a study file in TOML",
    "x = " + "9" * 5000: "study.toml: not a study file in TOML",
    '[[encoder]]\nname = "mfcc"\n': r"no corpus; add a table \[corpus.NAME\]",
    '[corpus.c]\naudio = "recordings"\n': r"no encoder; add \[\[encoder\]\]",
    "corpus = 3": "corpus: expected a table of keys, got 3",
    "= 3": "study.toml: not a study file in TOML",
}


def test_an_error_names_the_key_and_what_is_expected(folder):
    errors = [(MINIMAL + text, match) for text, match in ADDED.items()]
    errors += [(MINIMAL.replace(old, new), match) for old, new, match in REPLACED]
    for text, match in [*errors, *WHOLE_TEXTS.items()]:
        with pytest.raises((OptionError, InputError), match=match):
            read_study(study(folder, text))


def test_a_corpus_with_the_name_of_a_known_one_gets_its_options(folder):
    assert (
        read_study(study(folder, MINIMAL.replace("corpus.c", "corpus.ldc2010s05")))
        .corpora[0]
        .reading["options"]
        .collar_s
        == 0.25
    )


def test_files_of_the_study_are_not_part_of_a_corpus_unless_they_contain_it(folder):
    inside = read_study(
        study(
            folder,
            MINIMAL.replace("recordings", ".")
            + '[baselines]\nreferences = "baselines.csv"',
        )
    )
    assert set(inside.corpora[0].reading["annotation_options"].exclude) == {
        folder / "study.toml",
        folder / "results",
        folder / "baselines.csv",
    }
    around = read_study(study(folder, 'out = "."\n' + MINIMAL))
    assert folder not in around.corpora[0].reading["annotation_options"].exclude


def test_the_path_of_an_onnx_model_is_relative_to_the_study(folder, monkeypatch):
    text = MINIMAL.replace(
        '"mfcc"', '"onnx:my.onnx"\nrate_hz = 16000\nwindow_s = 1.0\ndimension = 8'
    )
    monkeypatch.setattr("callshot.study.study_file.list_needs", lambda spec: [])
    assert read_study(study(folder, text)).encoders[0].joined_encoder.specs[0].options[
        "path"
    ] == str(folder / "my.onnx")


def test_an_encoder_without_weights_is_an_error_with_the_command_that_gets_them(
    folder, monkeypatch
):
    monkeypatch.setenv("CALLSHOT_HOME", str(folder / "home"))
    with pytest.raises(
        InputError,
        match=r"encoder perch-v2: cannot run yet; first: .*callshot encoders get perch-v2",
    ):
        read_study(study(folder, MINIMAL.replace("mfcc", "perch-v2")))


def test_a_missing_study_file_is_an_error_with_the_command_that_writes_one(tmp_path):
    with pytest.raises(
        InputError, match=r"gone.toml: cannot be read .*callshot init writes one"
    ):
        read_study(tmp_path / "gone.toml")


def test_a_list_of_values_compares_and_a_plus_joins(folder):
    text = MINIMAL + 'speed = [1, 2, "2+4"]\n'
    titles = read_study(study(folder, text)).encoder_titles
    assert titles == ["mfcc", "mfcc[speed=2]", "mfcc[speed=2+4]"]


def test_several_lists_compare_every_combination(folder):
    text = MINIMAL + 'speed = [1, 2]\npooling = ["mean", "max"]\n'
    titles = read_study(study(folder, text)).encoder_titles
    assert titles == [
        "mfcc",
        "mfcc[pooling=max]",
        "mfcc[speed=2]",
        "mfcc[pooling=max,speed=2]",
    ]


def test_encoders_can_have_titles(folder):
    one = read_study(study(folder, MINIMAL + 'title = "cepstra"\nspeed = 2\n'))
    assert one.encoder_titles == ["cepstra"]
    assert one.encoders[0].choices == {"speed": "2"}
    text = MINIMAL + 'speed = [1, 2]\ntitle = ["slow", "fast"]\n'
    assert read_study(study(folder, text)).encoder_titles == ["slow", "fast"]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ('title = "a"\nspeed = [1, 2]', "expected a list of 2 titles.* got 1"),
        ('title = ["a", "b", "c"]\nspeed = [1, 2]', "list of 2 titles.* got 3"),
        ("title = 5", "expected text in quotes, got 5"),
        ('title = " "', "title: expected printable text"),
        ('title = "a"\n[[encoder]]\nname = "random"\ntitle = "a"', "a is given twice"),
    ],
)
def test_wrong_titles_are_explained(folder, lines, problem):
    with pytest.raises(OptionError, match=problem):
        read_study(study(folder, MINIMAL + lines))


def test_joined_views_have_no_sequences_for_a_network(folder):
    text = MINIMAL + 'speed = "2+4"\n[baselines]\ntrain = ["recurrent"]\n'
    with pytest.raises(OptionError, match=r"mfcc\[speed=2\+4\] has none"):
        read_study(study(folder, text))
