"""What a reader types: a folder with `kvsize` on the path and the files that examples name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}
MODELS = "# what we serve\nllama-3.1-70b\nqwen3-32b   # chat\n\ngemma-3-27b\n"

PAGE = """\
<!-- kvsize:value llama-3.1-70b ctx=32k total -->10.00 GiB<!-- /kvsize:value --> in all.
"""


def furnish(folder: Path) -> Path:
    """Put there a config.json, a models.txt, two documents, and the command itself."""
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    (folder / "models.txt").write_text(MODELS, encoding="utf-8")
    (folder / "docs").mkdir(exist_ok=True)
    for page in ("README.md", "docs/page.md"):
        (folder / page).write_text(PAGE, encoding="utf-8")
    (folder / "kvsize").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvsize "$@"\n', "utf-8")
    (folder / "kvsize").chmod(0o755)
    return folder


def typed(
    command: str, folder: Path, *, shell: str = "bash", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run `command` as it would be typed there; standard error is in stdout, as on a screen."""
    return subprocess.run(
        [shell, "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        encoding="utf-8",
        timeout=120,
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONIOENCODING": "utf-8",
            "COLUMNS": "80",
            "NO_COLOR": "1",
            **env,
        },
    )
