"""What went wrong with TLS on the way to a server, and whether waiting may end it."""

import re
import ssl
from typing import Final, NamedTuple

_FROM_FILE: Final = re.compile("PEM|X509|NO_CERTIFICATE_OR_CRL_FOUND|KEY_VALUES_MISMATCH")
"""What OpenSSL says of files of certificates and keys."""
_CLIENT_REFUSED: Final = re.compile("ALERT.*(CERTIFICATE|UNKNOWN_CA)")


class TlsSettings(NamedTuple):
    """What to do about TLS to one kind of server, as parts of sentences.

    Attributes:
        files: Where files of certificates and keys are named.
        trust: How to trust another CA.
        identify: How to show a client's certificate.
    """

    files: str
    trust: str
    identify: str


class TlsFailure(NamedTuple):
    """What was found, as a sentence about the server without its subject."""

    passes: bool
    told: str


def list_causes(error: BaseException) -> list[BaseException]:
    """The error and those that it came of, the last one first."""
    found = [error]
    while (cause := found[-1].__cause__ or found[-1].__context__) is not None and cause not in found:
        found.append(cause)
    return found


def find_tls_failure(error: BaseException, settings: TlsSettings) -> TlsFailure | None:
    """What an error came of, if that was TLS; None otherwise.

    A file that is not there counts: do not ask for a server that is reached through one.
    """
    # Clients wrap it in errors of the same class that lack the reason.
    for each in reversed(list_causes(error)):
        if isinstance(each, ssl.SSLError):
            return _describe_refusal(each, settings)
        if isinstance(each, FileNotFoundError):
            return TlsFailure(False, f"cannot be asked: a file is not here; correct {settings.files}")
    return None


def _describe_refusal(error: ssl.SSLError, settings: TlsSettings) -> TlsFailure:
    reason = str(getattr(error, "reason", None) or type(error).__name__)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = getattr(error, "verify_message", reason)
        return TlsFailure(
            True,
            f"shows a certificate that is not trusted here ({reason}); if a CA of your own"
            f" signed it, {settings.trust}",
        )
    if _FROM_FILE.search(f"{error} {reason}"):
        return TlsFailure(
            False,
            f"cannot be asked: a file holds no certificate or key that fits ({reason});"
            f" correct {settings.files}",
        )
    if _CLIENT_REFUSED.search(reason):
        return TlsFailure(
            True,
            f"takes only clients with a certificate that it trusts ({reason}); {settings.identify}",
        )
    return TlsFailure(True, f"did not answer over TLS ({reason}); repeat the call later")
