"""A public checkpoint of AST or BEATs → an encoder and its weights, checked before anything is trained.

    AST     the original .pth (module.v.…), or Hugging Face's safetensors (audio_spectrogram_transformer.…)
    BEATs   the original .pt: {'cfg': …, 'model': …}, iteration 3 and 3+, also those that were fine-tuned

Nothing is unpickled: torch reads with `weights_only=True`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from callshot.baselines.beats import Beats
from callshot.baselines.torch_arrays import Arrays, need_torch
from callshot.baselines.transformer import Ast
from callshot.baselines.weight_conversion import (
    Source,
    convert_ast,
    convert_beats,
    tell_short,
    tell_some,
)
from callshot.errors import InputError


@dataclass(frozen=True)
class Pretrained:
    """An encoder with its weights, and what the file has beside them."""

    path: Path
    digest: str
    encoder: Ast | Beats
    arrays: Arrays
    unused: tuple[str, ...]


def read_pretrained(path: Path) -> Pretrained:
    """Read a checkpoint, and say what it is by what is in it."""
    content = _read(path)
    try:
        source, encoder, arrays = _convert(path, content)
    except InputError:
        raise
    except Exception as error:  # whatever else a file may hold
        why = tell_short(f"{type(error).__name__}: {error}")
        raise InputError(
            f"{path}: wanted AST or BEATs as published, found other content ({why})"
        ) from error
    with path.open("rb") as stream:
        digest = file_digest(stream, "sha256").hexdigest()
    return Pretrained(
        path, digest, encoder, arrays, tuple(sorted({*source.tensors} - source.taken))
    )


def _convert(path: Path, content: Mapping[str, Any]) -> tuple[Source, Ast | Beats, Arrays]:
    if {"cfg", "model"} <= content.keys():
        source = Source(path, _arrays(path, content["model"]))
        return source, *convert_beats(source, content["cfg"])
    tensors = _arrays(path, content)
    source = Source(path, {name.removeprefix("module."): array for name, array in tensors.items()})
    return source, *convert_ast(source)


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise InputError(f"{path}: wanted a checkpoint of AST or BEATs, found no file")
    torch = need_torch()
    try:
        if path.suffix == ".safetensors":
            content = import_module("safetensors.torch").load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle, zipfile and safetensors have many
        why = tell_short(error)
        raise InputError(
            f"{path}: cannot be read as weights alone ({why}); wanted AST or BEATs as published"
        ) from error
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"{path}: wanted tensors by name, found {type(content).__name__}")
    return content


def _arrays(path: Path, found: Any) -> dict[str, NDArray[Any]]:
    torch = need_torch()
    if not isinstance(found, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in found.values()
    ):
        raise InputError(
            f"{path}: wanted tensors by name, found {tell_some(found)}; give AST or BEATs as published"
        )
    for name, tensor in found.items():
        if (
            tensor.layout != torch.strided
            or tensor.is_meta
            or tensor.is_complex()
            or tensor.is_quantized
        ):
            what = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
            raise InputError(
                f"{path}: wanted tensor {tell_short(name)} of real numbers, dense, found {what}"
            )
    return {str(name): tensor.detach().float().numpy() for name, tensor in found.items()}
