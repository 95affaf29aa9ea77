"""HuBERT's second layer on a GPU, through torch: audio-hours a second, and where the time goes.

Random weights of the published shape (the numbers do not matter to the clock). Segments of 1, 5, 20 and 44 s (the
paper's longest) go in one at a time, as `callshot embed` does it, from NumPy to NumPy. The parts are measured apart, on
the same segments: preparing on the CPU, copying in, the convolutions, the layers, copying out; in the rest the GPU
waits. `8 at once` is eight segments of one length in a batch, for comparison. It needs torch, transformers and
safetensors.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

from callshot.encoders.hubert import RATE_HZ, _build, _prepared, open_hubert_torch
from table import parser, show

LENGTHS_S, LAYER, ROUNDS = (1, 5, 20, 44), 2, 30


def median_s(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median time of a piece of work, after three rounds to warm up."""
    took = []
    for turn in range(rounds + 3):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        took.append(time.perf_counter() - start if turn >= 3 else np.inf)
    return float(np.median(sorted(took)[:rounds]))


def parts_s(model: torch.nn.Module, signal: np.ndarray) -> dict[str, float]:
    """Measure every part on its own."""
    ready = _prepared(signal, True, 60.0)
    on_gpu = torch.from_numpy(ready)[None].cuda()
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
        heard = model.feature_extractor(on_gpu).transpose(1, 2)
        frames = model(on_gpu).last_hidden_state[0]
        return {
            "prepare": median_s(lambda: _prepared(signal, True, 60.0)),
            "copy in": median_s(lambda: torch.from_numpy(ready)[None].cuda()),
            "convolutions": median_s(lambda: model.feature_extractor(on_gpu)),
            "layers": median_s(lambda: model.encoder(model.feature_projection(heard))),
            "copy out": median_s(lambda: np.array(frames.cpu().numpy(), np.float32)),
        }


def busy_share(work: Callable[[], object]) -> float:
    """Return the share of the time in which the GPU has something to do, by torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        for _ in range(20):
            work()
        torch.cuda.synchronize()
    spans = sorted(
        (e.time_range.start, e.time_range.end)
        for e in seen.events()
        if e.device_type.name == "CUDA"
    )
    busy, until = 0.0, spans[0][0]
    for start, end in spans:
        busy, until = busy + max(0.0, end - max(start, until)), max(until, end)
    return busy / (until - spans[0][0])


def measure(path: Path, seconds: int) -> dict[str, object]:
    """Measure segments of one length."""
    signal = np.random.default_rng(0).normal(size=RATE_HZ * seconds).astype(np.float32) * 0.1
    encode = open_hubert_torch(path, LAYER, device="cuda")
    model = _build(path, LAYER)[1].cuda()
    whole_s = median_s(lambda: encode(signal))
    batch = torch.from_numpy(np.stack([signal] * 8)).cuda()
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):
        eight_s = median_s(lambda: model(batch).last_hidden_state.cpu())
    return {
        "seconds": seconds,
        "ms": 1e3 * whole_s,
        "audio-h/s": seconds / whole_s / 3600,
        "8 at once, audio-h/s": 8 * seconds / eight_s / 3600,
        "GPU busy": busy_share(lambda: encode(signal)),
        **{f"{name}, ms": 1e3 * took for name, took in parts_s(model, signal).items()},
    }


def main() -> None:
    """Run everything and print one table."""
    chosen = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        torch.manual_seed(0)
        save_file(transformers.HubertModel(transformers.HubertConfig()).state_dict(), path)
        rows = [measure(path, seconds) for seconds in LENGTHS_S]
    show(
        f"bench/gpu: HuBERT, layer {LAYER}, one segment at a time, {torch.cuda.get_device_name()}",
        rows,
        chosen.json,
    )


if __name__ == "__main__":
    main()
