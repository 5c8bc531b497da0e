"""Sessions as files: written, verified, and made again in the same stores or in others."""

from helix_temporal.session_files.export import Exported, check_output, export_session, open_output
from helix_temporal.session_files.file import FORMAT, Header, VerifiedFile, verify_file
from helix_temporal.session_files.formats import FORMATS, FileFormat
from helix_temporal.session_files.imports import Imported, import_session
from helix_temporal.session_files.redaction import Redaction

__all__ = [
    "FORMAT",
    "FORMATS",
    "Exported",
    "FileFormat",
    "Header",
    "Imported",
    "Redaction",
    "VerifiedFile",
    "check_output",
    "export_session",
    "import_session",
    "open_output",
    "verify_file",
]
