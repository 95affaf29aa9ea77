"""HuBERT's second layer on a GPU, through torch: audio-hours per second, and where the time goes.

Random weights of the published shape (the values do not affect the speed). Segments of 1, 5, 20 and
44 s (the paper's longest) are encoded one at a time, as `callshot embed` does. The parts are
measured separately on the same segments: preparing on the CPU, copying in, the convolutions, the
layers, copying out; for the rest of the time the GPU waits. `8 at once` is a batch of eight
segments of one length, for comparison. Needs torch, transformers and safetensors.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from callshot.encoders.hubert import (
    RATE_HZ,
    build_hubert,
    open_hubert_torch,
    prepare_signal,
)
from table import parser, show

LENGTHS_S = (1, 5, 20, 44)
LAYER = 2
ROUNDS = 30
WARM_UP_ROUNDS = 3


def median_s(work: Callable[[], object]) -> float:
    """Return the median duration of a piece of work, after some rounds to warm up."""
    durations_s = []
    for _ in range(WARM_UP_ROUNDS + ROUNDS):
        torch.cuda.synchronize()
        start_s = time.perf_counter()
        work()
        torch.cuda.synchronize()
        durations_s.append(time.perf_counter() - start_s)
    return float(np.median(durations_s[WARM_UP_ROUNDS:]))


def part_durations_s(model: torch.nn.Module, signal: np.ndarray) -> dict[str, float]:
    """Measure every part by itself."""
    prepared = prepare_signal(signal, True)
    batch = torch.from_numpy(prepared)[None].cuda()
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
        features = model.feature_extractor(batch).transpose(1, 2)
        frames = model(batch).last_hidden_state[0]
        return {
            "prepare": median_s(lambda: prepare_signal(signal, True)),
            "copy in": median_s(lambda: torch.from_numpy(prepared)[None].cuda()),
            "convolutions": median_s(lambda: model.feature_extractor(batch)),
            "layers": median_s(
                lambda: model.encoder(model.feature_projection(features))
            ),
            "copy out": median_s(lambda: np.array(frames.cpu().numpy(), np.float32)),
        }


def busy_share(work: Callable[[], object]) -> float:
    """Return the share of the time in which the GPU works, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        for _ in range(20):
            work()
        torch.cuda.synchronize()
    events = [
        event.time_range
        for event in profiler.events()
        if event.device_type.name == "CUDA"
    ]
    spans = sorted((event.start, event.end) for event in events)
    first = spans[0][0]
    last = first
    busy = 0.0
    for start, end in spans:
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    return busy / (last - first)


def measure(path: Path, seconds: int) -> dict[str, object]:
    """Measure segments of one length."""
    rng = np.random.default_rng(0)
    signal = rng.normal(size=RATE_HZ * seconds).astype(np.float32) * 0.1
    encode = open_hubert_torch(path, LAYER, device="cuda")
    model = build_hubert(path, LAYER)[1].cuda()
    single_s = median_s(lambda: encode(signal))
    batch = torch.from_numpy(np.stack([signal] * 8)).cuda()
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
        eight_s = median_s(lambda: model(batch).last_hidden_state.cpu())
    row: dict[str, object] = {
        "seconds": seconds,
        "ms": 1e3 * single_s,
        "audio-h/s": seconds / single_s / 3600,
        "8 at once, audio-h/s": 8 * seconds / eight_s / 3600,
        "GPU busy": busy_share(lambda: encode(signal)),
    }
    for name, duration_s in part_durations_s(model, signal).items():
        row[f"{name}, ms"] = 1e3 * duration_s
    return row


def main() -> None:
    """Measure all lengths and print one table."""
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        torch.manual_seed(0)
        model = transformers.HubertModel(transformers.HubertConfig())
        save_file(model.state_dict(), path)
        rows = [measure(path, seconds) for seconds in LENGTHS_S]
    device = torch.cuda.get_device_name()
    show(
        f"bench/gpu: HuBERT, layer {LAYER}, one segment at a time, {device}",
        rows,
        options.json,
    )


if __name__ == "__main__":
    main()
