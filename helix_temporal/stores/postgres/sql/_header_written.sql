-- The header as this very statement wrote it, checksum and all.
{include:header_columns}, true AS sound
