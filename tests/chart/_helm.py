"""Helm as a program: where it is, and how it is run."""

import os
import shutil
import subprocess
from typing import Final

from tests.architecture._chart import CHART, HELM

KUBERNETES: Final = "1.33.0"
"""Templates may ask of what version the cluster is; there is none here."""


def run_helm(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm, as HELIX_HELM_BINARY names it.

    Raises:
        RuntimeError: It names nothing that runs.
    """
    program = shutil.which(os.environ.get("HELIX_HELM_BINARY", "helm"))
    if program is None:
        raise RuntimeError(
            "there is no helm; run `make chart`, which builds it, or name one: HELIX_HELM_BINARY"
        )
    version = [f"--kube-version={KUBERNETES}"] if command in {"lint", "template"} else []
    return subprocess.run(
        [program, command, *arguments, *version], capture_output=True, text=True, check=False
    )


def render(example: str) -> str:
    """The manifests of a set of values, as a release called helix-temporal.

    Raises:
        RuntimeError: Helm refuses them, or is not there.
    """
    values = HELM / "values" / f"{example}.yaml"
    ran = run_helm("template", "helix-temporal", str(CHART), f"--values={values}")
    if ran.returncode != 0:
        raise RuntimeError(f"{example}: {ran.stderr}")
    return ran.stdout
