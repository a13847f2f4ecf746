"""`kvsize schema`: the JSON schema of the report."""

from __future__ import annotations

from kvsize.commands._flags import Text

EXAMPLES = """\b
kvsize schema > report.schema.json
"""


def command() -> Text:
    """Print the JSON schema of the report that --json writes."""
    from kvsize import listing

    return listing.schema_text(), ""
