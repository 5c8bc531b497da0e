"""The Helm chart as files: its values, what they render to, and the settings that it takes."""

import json
import types
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import yaml
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from helix_temporal.settings import Limits, Settings, Timeouts
from tests.architecture._project import ROOT

HELM: Final = ROOT / "deploy" / "helm"
CHART: Final = HELM / "helix-temporal"
SCHEMA: Final = CHART / "values.schema.json"
EXAMPLES: Final = tuple(sorted(path.stem for path in (HELM / "values").glob("*.yaml")))
"""Sets of values with names, each of which renders to the golden manifest of its name."""
WORKERS: Final = {"sessions", "maintenance"}
OF_SECRETS: Final = {"HELIX_REDIS_URL", "HELIX_POSTGRES_DSN"}
"""Addresses that hold passwords, beside what is a secret as a whole."""

Manifest = dict[str, Any]


def golden(example: str) -> list[Manifest]:
    """The manifests that a set of values renders to."""
    text = (HELM / "golden" / f"{example}.yaml").read_text()
    return [each for each in yaml.safe_load_all(text) if each]


def values_of(example: str) -> dict[str, Any]:
    """A set of values, without the chart's defaults."""
    parsed: dict[str, Any] = yaml.safe_load((HELM / "values" / f"{example}.yaml").read_text())
    return parsed


def defaults() -> dict[str, Any]:
    """The chart's own values."""
    parsed: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return parsed


def schema() -> dict[str, Any]:
    """The schema of the values."""
    parsed: dict[str, Any] = json.loads(SCHEMA.read_text())
    return parsed


def pods(manifests: list[Manifest]) -> dict[str, Manifest]:
    """What runs: the specification of each pod, by its component."""
    found = {}
    for manifest in manifests:
        template = manifest if manifest["kind"] == "Pod" else manifest.get("spec", {}).get("template", {})
        if "containers" in template.get("spec", {}):
            found[template["metadata"]["labels"]["app.kubernetes.io/component"]] = template["spec"]
    return found


def schema_of_settings() -> dict[str, Any]:
    """What the chart takes as ``settings``: each variable that is no secret, with its kind and its bounds."""
    known = {}
    for group in (Settings, Timeouts, Limits):
        for name, field in group.model_fields.items():
            variable = f"{group.VARIABLES}{name.upper()}"
            if name not in {"timeouts", "limits"} and not _is_secret(variable, field):
                known[variable] = _kind_of(field)
    return {"type": "object", "additionalProperties": False, "properties": dict(sorted(known.items()))}


def secret_variables() -> set[str]:
    """Variables that are secrets, or hold one."""
    fields = {f"HELIX_{name.upper()}": field for name, field in Settings.model_fields.items()}
    return {variable for variable, field in fields.items() if _is_secret(variable, field)}


def _is_secret(variable: str, field: FieldInfo) -> bool:
    return variable in OF_SECRETS or SecretStr in _types_of(field.annotation)


def _types_of(annotation: Any) -> list[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _types_of(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return [each for part in get_args(annotation) for each in _types_of(part)]
    return [annotation]


def _kind_of(field: FieldInfo) -> dict[str, Any]:
    (kind,) = (each for each in _types_of(field.annotation) if each is not type(None))
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if kind is timedelta:
        return {"$ref": "#/$defs/duration"}
    if kind is bool:
        return {"type": "boolean"}
    if kind in {int, float}:
        return {"type": "integer" if kind is int else "number", **dict(_bounds_of(field.metadata))}
    return {"type": "string", "minLength": 1}


def _bounds_of(metadata: list[Any]) -> Iterator[tuple[str, float]]:
    for each in metadata:
        for bound, word in (("ge", "minimum"), ("le", "maximum")):
            if hasattr(each, bound):
                yield word, getattr(each, bound)


def write_schema() -> None:
    """Bring the schema's list of settings up to date."""
    found = schema()
    found["properties"]["settings"] = schema_of_settings()
    SCHEMA.write_text(f"{json.dumps(found, indent=2)}\n")


def chart_yaml() -> dict[str, Any]:
    """What the chart says of itself."""
    parsed: dict[str, Any] = yaml.safe_load((CHART / "Chart.yaml").read_text())
    return parsed


def path_of_golden(example: str) -> Path:
    """Where the golden manifest of a set of values is."""
    return HELM / "golden" / f"{example}.yaml"
