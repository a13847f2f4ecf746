"""Write kvsize/data/check.schema.json from the keys: `python tools/generate_check_schema.py`."""

from __future__ import annotations

from kvsize.checks.schema import FILE, generated

if __name__ == "__main__":
    FILE.write_text(generated(), encoding="utf-8")
