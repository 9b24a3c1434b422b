"""A precision plan: which quant type each layer's gate, up and down get. A plain JSON file, checked before it is
used."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from les._core import GgufFile
from les.errors import InvalidArgumentError, NotFoundError, ReadError
from les.pack.layout import SLICES, plan_layer
from les.precision.qtypes import check_fits, check_writable, fits, slices_of

FORMAT = "les-precision-plan"
VERSION = 1

Types = dict[int, dict[str, str]]


@dataclass(frozen=True)
class PrecisionPlan:
    """types: layer -> slice -> quant type; what is not named keeps the source's type. notes: how the plan came
    about."""

    types: Types
    notes: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        layers = {str(layer): dict(types) for layer, types in sorted(self.types.items())}
        return {"format": FORMAT, "version": VERSION, "layers": layers, "notes": self.notes}


def plan_from_json(value: Any, what: str) -> PrecisionPlan:
    """Raises InvalidArgumentError, beginning with what, for anything that is no plan."""

    def refuse(why: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{what}: {why}")

    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise refuse(f'no precision plan: an object with "format": "{FORMAT}" is expected')
    if value.get("version") != VERSION:
        raise refuse(f"version is {value.get('version')!r}; known: {VERSION}")
    unknown = set(value) - {"format", "version", "layers", "notes"}
    if unknown:
        raise refuse(f"unknown key {min(unknown)!r}")
    layers, notes = value.get("layers"), value.get("notes", {})
    if not isinstance(layers, dict) or not isinstance(notes, dict):
        raise refuse("layers and notes are objects")
    types: Types = {}
    for key, entry in layers.items():
        if not (key.isascii() and key.isdigit()) or str(int(key)) != key:
            raise refuse(f"{key!r} is no layer number")
        if (
            not isinstance(entry, dict)
            or not entry
            or not set(entry) <= set(SLICES)
            or not all(isinstance(t, str) for t in entry.values())
        ):
            raise refuse(f"layer {key}: expected types for some of {', '.join(SLICES)}")
        types[int(key)] = {name: check_writable(t) for name, t in entry.items()}
    return PrecisionPlan(types, notes)


def load_plan(path: str | Path) -> PrecisionPlan:
    """Reads a plan. Raises NotFoundError, ReadError or InvalidArgumentError."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such plan") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ReadError(f"{path}: {error}") from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise InvalidArgumentError(f"{path}: no JSON: {error}") from error
    return plan_from_json(value, str(path))


def save_plan(plan: PrecisionPlan, path: str | Path) -> None:
    """Writes a plan beside and renames it."""
    target = Path(path)
    part = target.with_name(target.name + ".part")
    try:
        part.write_text(json.dumps(plan.as_json(), indent=1) + "\n", "utf-8")
        os.replace(part, target)
    except OSError as error:
        raise ReadError(f"{part}: {error.strerror or error}") from error


def check_plan(plan: PrecisionPlan, source: GgufFile) -> None:
    """Raises InvalidArgumentError for layers, slices or types that the model cannot have."""
    layers = {layer.layer: layer for layer in source.expert_layers}
    for number, types in plan.types.items():
        if number not in layers:
            raise InvalidArgumentError(f"the plan names layer {number}, which has no experts in {source.shards[0][0]}")
        for name, kind in types.items():
            if name not in layers[number].slices:
                raise InvalidArgumentError(f"the plan names {name} of layer {number}, which has none")
            if kind != layers[number].slices[name]["type"]:
                check_fits(layers[number], name, kind)


def uniform_plan(source: GgufFile, types: dict[str, str], fallback: str | None = None) -> PrecisionPlan:
    """The same type for a slice in every layer; fallback, if given, where a row does not divide into blocks."""
    result: Types = {}
    for layer in source.expert_layers:
        result[layer.layer] = {}
        for name in slices_of(layer):
            kind = types.get(name)
            if kind is None:
                continue
            if fallback is not None and not fits(kind, layer.slices[name]["n_in"]):
                kind = fallback
            check_fits(layer, name, kind)
            result[layer.layer][name] = kind
    return PrecisionPlan({layer: entry for layer, entry in result.items() if entry})


def expert_bytes(source: GgufFile, types: Types | None = None) -> int:
    """Bytes of all records as a `.les` file stores them, padding and all."""
    return sum(
        p.record_bytes * p.n_expert
        for p in (plan_layer(layer, (types or {}).get(layer.layer)) for layer in source.expert_layers)
    )


def bytes_per_token(source: GgufFile, types: Types | None = None) -> int:
    """Bytes of the experts that one token uses."""
    used = source.metadata.get(f"{source.metadata.get('general.architecture')}.expert_used_count", 1)
    return sum(plan_layer(layer, (types or {}).get(layer.layer)).record_bytes * used for layer in source.expert_layers)


def mean_bits(source: GgufFile, types: Types | None = None) -> float:
    """Bits per weight over all experts, padding left out."""
    n_bytes = n_weights = 0
    for layer in source.expert_layers:
        planned = plan_layer(layer, (types or {}).get(layer.layer))
        n_bytes += planned.payload_bytes * layer.n_expert
        n_weights += sum(s.n_in * s.n_out for s in planned.slices.values()) * layer.n_expert
    return n_bytes * 8 / n_weights if n_weights else 0.0
