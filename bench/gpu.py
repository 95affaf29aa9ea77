"""Encoders on a GPU, in batches: windows per second before and after, and where the time goes.

HuBERT's second layer with random weights of the published shape (the values do not affect the
speed), by torch. Whole segments of 1, 5, 20 and 44 s (the paper's longest): one at a time, and in
batches of one length, as `callshot embed --device cuda` does; the largest difference between the
two, relative to the largest value; and the share of the time in which the GPU works. Then the whole
`embed` command on clips of 5 s, audio files and store included. One at a time is as it was before
there were batches: one thread, and all frames copied from the GPU.

`EfficientNet-B3` stands in for Perch 2: the same kind of network on windows of 5 s, with random
weights, by torchvision, because Perch itself needs onnxruntime-gpu.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
import torch
import transformers
from safetensors.torch import save_file

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import embed_spans
from callshot.encoders.encode import GPU_WORKERS, Encoder, PreparedSegment
from callshot.encoders.models.hubert import RATE_HZ, open_hubert_torch
from callshot.encoders.store import Store
from callshot.encoders.workers import Workers
from callshot.spans import Spans
from table import parser, show

LENGTHS_S = (1, 5, 20, 44)
LAYER = 2
AUDIO_S = 3000  # that is encoded at each length
CLIPS = 1000  # of 5 s, for the whole command
WINDOWS = 2000  # of the stand-in for Perch 2
SINGLE = 1  # segment in a batch


def run_all(
    encoder: Encoder, items: Sequence[PreparedSegment], batch_size: int | None
) -> list[np.ndarray]:
    """Encode segments as `embed` does, without reading and storing; return their vectors."""
    vectors = []
    outputs: list[Callable[[], np.ndarray]] = []
    with Workers(encoder) as workers:
        if batch_size is not None:
            workers.batch_size = batch_size
        for item in items:
            outputs.append(workers.submit(item))
            if len(outputs) > workers.ahead:
                done = len(vectors)
                vectors.append(encoder.pool(items[done], outputs.pop(0)()))
        for output in outputs:
            vectors.append(encoder.pool(items[len(vectors)], output()))
    torch.cuda.synchronize()
    return vectors


def time_all(work: Callable[[], object]) -> float:
    """Return how long work takes, after one round to warm up."""
    work()
    start_s = time.perf_counter()
    work()
    return time.perf_counter() - start_s


def busy_share(work: Callable[[], object]) -> float:
    """Return the share of the time in which the GPU works, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    start_s = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        work()
        elapsed_s = time.perf_counter() - start_s
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type.name == "CUDA"
    )
    busy = 0.0
    last = 0.0
    for start, end in spans:
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    return busy / 1e6 / elapsed_s


def compare(
    name: str, single: Encoder, encoder: Encoder, items: Sequence[PreparedSegment]
) -> dict[str, object]:
    """Encode one at a time and in batches."""
    one_by_one = partial(run_all, single, items, SINGLE)
    batches = partial(run_all, encoder, items, None)
    before_s = time_all(one_by_one)
    before = np.stack(one_by_one())
    after_s = time_all(batches)
    after = np.stack(batches())
    windows = sum(item.windows for item in items)
    return {
        "": name,
        "one at a time, windows/s": windows / before_s,
        "batches, windows/s": windows / after_s,
        "ratio": before_s / after_s,
        "difference": float(np.abs(after - before).max() / np.abs(before).max()),
        "GPU busy": busy_share(batches),
    }


def make_noise(samples: int, seed: int) -> np.ndarray:
    """Return noise, other noise for each seed."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(samples, np.float32) * np.float32(0.1)


def measure_hubert(
    single: Encoder, encoder: Encoder, seconds: int
) -> dict[str, object]:
    """Measure whole segments of one length."""
    items = [
        PreparedSegment(make_noise(RATE_HZ * seconds, n))
        for n in range(AUDIO_S // seconds)
    ]
    return compare(f"HuBERT, {seconds} s", single, encoder, items)


def measure_embed(single: Encoder, encoder: Encoder, folder: Path) -> dict[str, object]:
    """Measure everything that `embed` does, from audio files to a store."""
    segments = []
    for n in range(CLIPS):
        name = f"{n}.wav"
        soundfile.write(folder / name, make_noise(RATE_HZ * 5, n), RATE_HZ)
        segments.append({"recording": name, "start_s": 0.0, "end_s": 5.0})
    spans = Spans.from_rows(segments, root=folder).with_columns(rate_hz=RATE_HZ)

    def embed(encoder: Encoder, store: str) -> float:
        start_s = time.perf_counter()
        with Store(folder / store, encoder.fingerprint) as opened:
            embed_spans(spans, encoder, opened)
        return time.perf_counter() - start_s

    embed(single, "warm")
    before_s = embed(single, "before")
    embed(encoder, "warm again")
    after_s = embed(encoder, "after")
    return {
        "": f"HuBERT, {CLIPS} files of 5 s, embed",
        "one at a time, windows/s": CLIPS / before_s,
        "batches, windows/s": CLIPS / after_s,
        "ratio": before_s / after_s,
    }


class WindowStandIn(torch.nn.Module):
    """EfficientNet-B3 on a spectrogram of 500 × 128, from windows of 160,000 samples."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        network = torchvision.models.efficientnet_b3(weights=None)
        network.classifier = torch.nn.Identity()
        self.network = network.eval()

    @torch.inference_mode()
    def forward(self, windows: np.ndarray) -> np.ndarray:
        """Return vectors of 1536."""
        audio = torch.from_numpy(windows).cuda()
        window = torch.hann_window(640, device="cuda")
        spectrum = torch.stft(audio, 1024, 320, 640, window, return_complex=True)
        bands = spectrum.abs()[:, :512, :500].unflatten(1, (128, 4)).mean(2)
        vectors = self.network(bands[:, None].expand(-1, 3, -1, -1))
        return np.array(vectors.cpu().numpy(), np.float32)


def measure_windows() -> dict[str, object]:
    """Measure segments of four windows each, on a network like that of Perch 2."""
    torch.manual_seed(0)
    spec = find_encoder("perch-v2")
    model = WindowStandIn().cuda()
    encoder = Encoder(spec, model, {}, GPU_WORKERS, "cuda")
    items = [
        PreparedSegment(make_noise(4 * 160_000, n).reshape(4, -1), np.ones(4))
        for n in range(WINDOWS // 4)
    ]
    single = replace(encoder, workers=1)
    return compare("EfficientNet-B3, 4 windows each", single, encoder, items)


def main() -> None:
    """Measure all and print one table."""
    options = parser(__doc__).parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "model.safetensors"
        torch.manual_seed(0)
        model = transformers.HubertModel(transformers.HubertConfig())
        save_file(model.state_dict(), path)
        frames = open_hubert_torch(path, LAYER, device="cuda")
        means = open_hubert_torch(path, LAYER, mean=True, device="cuda")
        spec = find_encoder("hubert-base-l2")
        single = Encoder(spec, frames.__call__, {"bench": "gpu"}, 1, "cuda")
        encoder = Encoder(spec, means, {"bench": "gpu"}, GPU_WORKERS, "cuda")
        rows = [measure_hubert(single, encoder, seconds) for seconds in LENGTHS_S]
        rows.append(measure_embed(single, encoder, folder))
        rows.append(measure_windows())
    device = torch.cuda.get_device_name()
    show(f"bench/gpu: {device}", rows, options.json)


if __name__ == "__main__":
    main()
