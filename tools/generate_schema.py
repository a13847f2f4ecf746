"""Write kvsize/data/report.schema.json from the report's type: `python tools/generate_schema.py`.

Needs pydantic, which is a development dependency only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pydantic import ConfigDict, TypeAdapter

from kvsize.advice import Advice
from kvsize.elsewhere import OtherEngine
from kvsize.listing import SCHEMA
from kvsize.report import Report, Row
from kvsize.results import LayerGroup


def generated() -> str:
    """The schema as the file has it."""
    for record in (LayerGroup, Advice, OtherEngine, Row, Report):
        dataclass(init=False, repr=False, eq=False)(record)  # what pydantic can read
    # The docstring under each field of Row becomes that property's description.
    Row.__pydantic_config__ = ConfigDict(use_attribute_docstrings=True)  # type: ignore[attr-defined]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(Report).json_schema(mode="serialization"),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(generated(), encoding="utf-8")
