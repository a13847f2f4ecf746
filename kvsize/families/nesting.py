"""Which section of a composite config.json is the text decoder.

transformers' `get_text_config(decoder=True)` (5.24.0, configuration_utils.py) takes the first of
`decoder`, `generator` and `text_config`; some classes override it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvsize.config import Config
from kvsize.model import Guess

OVERRIDES: dict[str, tuple[str, ...]] = {
    "canary": ("decoder_config",),
    "colmodernvbert": ("vlm_config", "text_config"),
    "colpali": ("vlm_config", "text_config"),
    "colqwen2": ("vlm_config", "text_config"),
    "dia": ("decoder_config",),
    "qwen2_5_omni": ("thinker_config", "text_config"),
    "qwen3_omni_moe": ("thinker_config", "text_config"),
}
STANDARD = ("decoder", "generator", "text_config")
# Where remote code nests its decoder.
REMOTE = ("llm_config", "language_config", "decoder_config", "thinker_config", "language_model")
# Classes that take their decoder's keys from the top of the file when the section is absent.
READS_FLAT_FILES = {"qwen2_vl", "qwen2_5_vl", "florence2"}


def text_decoder(root: Config, guesses: list[Guess]) -> Config:
    """The section that describes the text decoder; `root` itself for a plain file."""
    if root.model_type in OVERRIDES:
        return _along(OVERRIDES[root.model_type], root)
    misread = _ignored_section(root)
    if misread is not None:
        guesses.append(
            Guess(
                "KV010",
                f"transformers' class for '{root.model_type}' does not read `{misread}`, where "
                "this file describes its decoder; the figure follows the file.",
            )
        )
        return root.section(misread)
    for key in STANDARD:
        if isinstance(root.raw.get(key), Mapping):
            return root.section(key)
    for key in STANDARD:
        if key in root.sections():
            return _absent_section(root, key, guesses)
    if not root.known:
        for key in REMOTE:
            if isinstance(root.raw.get(key), Mapping):
                return text_decoder(root.section(key), guesses)
    return root


def _along(path: tuple[str, ...], root: Config) -> Config:
    """The section at the end of `path`, steps that are not there left out."""
    section = root
    for key in path:
        if key in section.raw or key in section.sections():
            section = section.section(key)
    return section


def _ignored_section(root: Config) -> str | None:
    """A section with a decoder's keys that the model type's class has no name for."""
    if not root.known or any(isinstance(root.raw.get(key), Mapping) for key in STANDARD):
        return None
    for key in REMOTE:
        nested = root.raw.get(key)
        if isinstance(nested, Mapping) and "num_hidden_layers" in nested:
            return None if key in root.sections() else key
    return None


def _absent_section(root: Config, key: str, guesses: list[Guess]) -> Config:
    """The class's own section, or the file itself when it has the decoder's keys at its top."""
    if "num_hidden_layers" not in root.raw:
        return root.section(key)
    kind = root.sections()[key].get("model_type", "")
    if root.model_type not in READS_FLAT_FILES:
        guesses.append(
            Guess(
                "KV010",
                f"transformers' class for '{root.model_type}' expects the decoder under `{key}`; "
                "this file has it at the top, and the figure follows the file.",
            )
        )
    return Config(root.raw, root.where, kind)
