"""What several tests of the project look at."""

from pathlib import Path

import pytest

from tests.architecture._building import build_package


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the workflow of a release builds: an sdist, and a wheel from it."""
    return build_package(tmp_path_factory.mktemp("dist"))
