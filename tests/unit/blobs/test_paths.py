"""Keys as file paths: one key, one path, and never a path outside."""

import re
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_temporal.blobs.directory import key_of, path_of
from helix_temporal.blobs.protocol import check_key
from helix_temporal.errors import InvalidRequestError


def is_good(key: str) -> bool:
    """Whether stores take the key."""
    try:
        check_key(key)
    except InvalidRequestError:
        return False
    return True


PARTS = st.text(min_size=1, max_size=60) | st.text(alphabet=".%ab", min_size=1, max_size=250)
KEYS = st.lists(PARTS | st.just("a.blob"), min_size=1, max_size=4).map("/".join).filter(is_good)


@given(KEYS)
def test_a_path_leads_back_to_its_key(key: str) -> None:
    """Listings find keys by their paths; this also means that no two keys share a path."""
    assert key_of(path_of(key)) == key


@given(KEYS)
def test_a_path_stays_inside_and_plain(key: str) -> None:
    """No part climbs, hides at the top, is too long, or differs from another by case alone."""
    path = path_of(key)
    assert not path.is_absolute()
    assert re.fullmatch(r"[a-z0-9_%-][a-z0-9_.%/-]*\.blob", path.as_posix())
    assert not {".", ".."} & set(path.parts)
    assert max(map(len, path.parts)) <= 255


@given(KEYS, KEYS)
def test_a_file_is_never_the_folder_of_another(one: str, other: str) -> None:
    """``a`` and ``a/b`` can both be there."""
    assert path_of(one) not in path_of(other).parents


def test_ordinary_keys_stay_readable() -> None:
    """An operator finds a thread's files by looking."""
    path = path_of("helix/v2/0a/thread-1/seg/0-99.g1.3fd2")
    assert path == PurePosixPath("helix/v2/0a/thread-1/seg/0-99.g1.3fd2.blob")


@pytest.mark.parametrize("name", ["notes.txt", ".blob", "UPPER.blob", "%zz.blob", "%.blob", "a%2Fb.blob"])
def test_files_of_others_are_no_keys(name: str) -> None:
    """A listing passes over what no key could have written."""
    assert key_of(PurePosixPath(name)) is None
