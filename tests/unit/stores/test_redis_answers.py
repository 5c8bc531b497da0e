"""Answers of a server, read from pieces that end anywhere."""

from typing import Any

import pytest
from redis.exceptions import InvalidResponse, ResponseError

from helix_temporal.stores.redis._answers import MORE, Answers

LARGE = bytes(range(256)) * 1024
ANSWER = [
    [b"key", [[b"1-0", [b"b", b"line\r\nline", b"e", b""]], [b"2-0", None]]],
    [],
    -7,
    b"OK",
    LARGE,
    None,
]
WRITTEN = (
    b"*6\r\n"
    b"*2\r\n$3\r\nkey\r\n*2\r\n"
    b"*2\r\n$3\r\n1-0\r\n*4\r\n$1\r\nb\r\n$10\r\nline\r\nline\r\n$1\r\ne\r\n$0\r\n\r\n"
    b"*2\r\n$3\r\n2-0\r\n$-1\r\n"
    b"*0\r\n:-7\r\n+OK\r\n$262144\r\n" + LARGE + b"\r\n*-1\r\n"
)


def read(*pieces: bytes) -> list[Any]:
    """What each piece gives."""
    answers = Answers(ResponseError)
    return [answers.take(piece) for piece in pieces]


def cut(size: int) -> list[bytes]:
    """The answer in pieces of so many bytes."""
    return [WRITTEN[at : at + size] for at in range(0, len(WRITTEN), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 4096, len(WRITTEN) - 1, len(WRITTEN)])
def test_an_answer_is_the_same_however_it_is_cut(size: int) -> None:
    """A network keeps the order of bytes, and nothing else."""
    *before, answer = read(*cut(size))

    assert answer == ANSWER
    assert all(each is MORE for each in before)


@pytest.mark.parametrize("at", range(1, 130))
def test_an_answer_may_be_cut_in_any_place(at: int) -> None:
    """Between the two bytes that end a line, too."""
    assert read(WRITTEN[:at], WRITTEN[at:]) == [MORE, ANSWER]


def test_a_refusal_is_given_back_as_the_driver_would_raise_it() -> None:
    """Who asked decides what it means; the connection can be used for the next question."""
    (error,) = read(b"-NOSCRIPT No matching script.\r\n")

    assert isinstance(error, ResponseError)
    assert str(error) == "NOSCRIPT No matching script."


@pytest.mark.parametrize(
    "answer",
    [b"+OK\r\n:1\r\n", b"HTTP/1.1 400 Bad Request\r\n", b"\r\n", b"$x\r\n", b"*1\r\n:x\r\n"],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    """A proxy's page, or the answer to somebody else, must never pass for a message."""
    with pytest.raises(InvalidResponse):
        read(answer)
