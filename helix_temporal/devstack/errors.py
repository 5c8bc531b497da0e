"""What can go wrong with local servers.  These errors never cross the wire."""

from helix_temporal.errors import HelixError


class DevStackError(HelixError):
    """Base of the errors of the development stack."""


class ServerMissingError(DevStackError):
    """A server can't be had: no address, no binary.  The message names the ways to get it."""


class ServerStartError(DevStackError):
    """A server ended or did not become ready; the message ends with the last lines it wrote."""


class PortTakenError(DevStackError):
    """A port that was asked for is in use."""
