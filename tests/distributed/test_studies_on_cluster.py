"""Studies and evaluations on a cluster: the same files, and nothing is computed twice."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callshot.errors import ClusterError
from callshot.fewshot.protocol import make_protocol
from callshot.study.file_steps import evaluate_files
from callshot.study.run import run_study
from callshot.study.study_file import read_study
from cluster_jobs import list_files
from studies import make_corpus, write_embeddings, write_linear, write_study

pytest.importorskip("distributed")


def list_results(folder):
    """Return the files of a study, without what has times in it: seconds, and the store."""
    files = list_files(folder)
    for name in list(files):
        if name.endswith("step.json"):
            note = json.loads(files[name])
            del note["seconds"]
            files[name] = json.dumps(note).encode()
        elif name.startswith("store/"):
            del files[name]
    return files


def test_a_study_has_the_same_files_with_and_without_a_cluster(
    tmp_path, cluster, monkeypatch
):
    folder = tmp_path / "study"
    make_corpus(folder / "recordings")
    write_linear(folder / "linear.onnx", samples=8000, dimension=4, seed=0)
    path = write_study(folder / "study.toml", encoders=("onnx:linear.onnx",))
    text = path.read_text()
    text += "rate_hz = 16000\nwindow_s = 0.5\ndimension = 4\n"
    path.write_text(text)
    monkeypatch.chdir(folder)  # which is not the folder of the workers
    run_study(read_study(Path("study.toml")))
    plain = list_results(folder)
    for name in ("results", "store", ".callshot"):
        shutil.rmtree(folder / name)
    items = cluster.usage.items
    run_study(read_study(Path("study.toml")), cluster=cluster)
    assert cluster.usage.items > items
    assert list_results(folder) == plain
    items = cluster.usage.items
    assert run_study(read_study(path), cluster=cluster) == []
    assert cluster.usage.items == items


@dataclass
class LostCluster:
    """A cluster whose scheduler is gone after some items."""

    cluster: Any
    items: int

    def run(self, job):
        for count, outcome in enumerate(self.cluster.run(job)):
            if count == self.items:
                raise ClusterError("the scheduler is gone")
            yield outcome

    def add_audio(self, seconds):
        pass


PROTOCOL = make_protocol(
    shots="1-2,all",
    draws=5,
    bootstraps=20,
    shared_draws=10,
    total_samples=10,
    permutations=9,
    classifiers=("centroid", "cosine"),
)
BLOCKS = 2 * 3 * 2  # of shots, spreads and classifiers


def evaluate_table(folder, out, cluster=None, protocol=PROTOCOL):
    """Evaluate the table of a folder; return how many blocks workers computed."""
    items = 0 if cluster is None else cluster.usage.items
    evaluate_files(
        [folder / "mine.parquet"],
        folder / out,
        protocol,
        device="cpu",
        figure=False,
        cluster=cluster,
    )
    return 0 if cluster is None else cluster.usage.items - items


def test_an_evaluation_begins_again_after_a_lost_scheduler(tmp_path, cluster):
    write_embeddings(tmp_path / "mine.parquet")
    evaluate_table(tmp_path, "plain")
    options = {"device": "cpu", "figure": False, "cluster": LostCluster(cluster, 5)}
    table = [tmp_path / "mine.parquet"]
    out = tmp_path / "stopped"
    with pytest.raises(ClusterError, match="the scheduler is gone"):
        evaluate_files(table, out, PROTOCOL, **options)
    assert evaluate_table(tmp_path, "stopped", cluster) == BLOCKS
    assert list_files(out) == list_files(tmp_path / "plain")
