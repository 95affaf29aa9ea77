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


def test_every_key_reaches_its_field(folder):
    content = read_study(study(folder, WHOLE))
    one, two = content.corpora
    assert content.report.title == "elephants of Amboseli"
    assert (content.out, content.store) == (folder / "found", folder / "kept")
    assert content.device == "cpu"
    reading = one.reading
    assert one.audio == folder / "recordings"
    assert reading["annotations"] == folder / "tables"
    assert reading["format"] == "raven"
    assert reading["annotation_options"].columns == {"label": "Call type"}
    assert reading["annotation_options"].tiers == ("calls",)
    options = reading["options"]
    assert (options.min_length_s, options.channel, options.collar_s) == (0.5, "1", 0.25)
    files = (folder / "folds.csv", folder / "categories.csv")
    assert (one.folds, one.fold_file, one.categories) == (3, *files)
    assert two.reading["options"].peak_dbfs is None
    assert two.reading["options"].min_length_s == 0.0
    assert content.encoder_titles == ["mfcc", "mfcc[n_fft=512]"]
    protocol = content.protocol
    assert (protocol.shots, protocol.draws, protocol.seed) == ((1, 2, 3, 10), 20, 7)
    assert protocol.spreads == ("shared",)
    assert content.references == folder / "baselines.csv"
    report = content.report
    assert (report.shots, report.confusion, report.target) == ((1, 3), (2,), None)


def test_the_smallest_study_has_the_papers_protocol(folder):
    content = read_study(study(folder, MINIMAL))
    assert content.protocol.shots == tuple(range(1, 41))
    assert content.report.title == folder.name
    assert content.report.shots == DisplayOptions().shots
    assert content.out == folder / "results"
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
    "[baselines]\ntrain = ['svm']": r"\[baselines\] train: expected one of .* got 'svm'",
    "[baselines]\ntrain = [1]": r"\[baselines\] train: expected names in quotes",
    "[baselines]\ntrain = ['logistic', 'logistic']": "twice",
    "[baselines]\ncell = 'gpt'": "cell: expected one of chosen, paper",
    "[baselines]\ndraws = 0": "draws: expected 1 to 1000000, got 0",
    "[baselines]\nC = -1": r"\[baselines\] .*C.*got -1",
    "[baselines]\ninit = 'study.toml'": "the end-to-end baseline, which is not trained",
    "[protocol]\nspread = 'per-query'\n[baselines]\nper_k = true": (
        r"uses the spread total, but \[protocol\] spread is per-query"
    ),
    "speed = '2+4'\n[baselines]\ntrain = ['recurrent']": (
        r"mfcc\[speed=2\+4\] has none"
    ),
    "title = ['a', 'b', 'c']\nspeed = [1, 2]": "list of 2 titles.* got 3",
    "title = 5": "expected text in quotes, got 5",
    "title = ' '": "title: expected printable text",
    "title = 'a'\n[[encoder]]\nname = 'random'\ntitle = 'a'": "a is given twice",
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


def test_files_of_the_study_are_not_part_of_a_corpus_unless_they_contain_it(folder):
    text = MINIMAL.replace("recordings", ".")
    text += '[baselines]\nreferences = "baselines.csv"'
    inside = read_study(study(folder, text))
    names = ("study.toml", "results", "baselines.csv")
    excluded = inside.corpora[0].reading["annotation_options"].exclude
    assert set(excluded) == {folder / name for name in names}
    around = read_study(study(folder, 'out = "."\n' + MINIMAL))
    assert folder not in around.corpora[0].reading["annotation_options"].exclude


def test_the_path_of_an_onnx_model_is_relative_to_the_study(folder, monkeypatch):
    keys = "rate_hz = 16000\nwindow_s = 1.0\ndimension = 8"
    text = MINIMAL.replace('"mfcc"', f'"onnx:my.onnx"\n{keys}')
    monkeypatch.setattr("callshot.study.study_file.list_needs", lambda spec: [])
    (spec,) = read_study(study(folder, text)).encoders[0].joined_encoder.specs
    assert spec.options["path"] == str(folder / "my.onnx")


def test_what_is_missing_is_an_error_with_the_command_that_gets_it(folder, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(folder / "home"))
    path = study(folder, MINIMAL.replace("mfcc", "perch-v2"))
    with pytest.raises(InputError, match=r"first: .*callshot encoders get perch-v2"):
        read_study(path)
    with pytest.raises(InputError, match=r"gone.toml: .*callshot init writes one"):
        read_study(folder / "gone.toml")


@pytest.mark.parametrize(
    ("keys", "titles"),
    [
        ('speed = [1, 2, "2+4"]', ["mfcc", "mfcc[speed=2]", "mfcc[speed=2+4]"]),
        (
            'speed = [1, 2]\npooling = ["mean", "max"]',
            ["mfcc", "mfcc[pooling=max]", "mfcc[speed=2]", "mfcc[pooling=max,speed=2]"],
        ),
        ('title = "cepstra"\nspeed = 2', ["cepstra"]),
        ('speed = [1, 2]\ntitle = ["slow", "fast"]', ["slow", "fast"]),
    ],
)
def test_a_list_of_values_compares_a_plus_joins_and_encoders_can_have_titles(
    folder, keys, titles
):
    assert read_study(study(folder, MINIMAL + keys)).encoder_titles == titles
