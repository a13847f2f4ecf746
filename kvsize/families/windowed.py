"""Decoders whose window is written under another key, is switched off by a flag, or converted."""

from __future__ import annotations

from kvsize.config import Config
from kvsize.families.decoder import Decoder


class QwenWindow(Decoder):
    """Qwen: `sliding_window` counts only with `use_sliding_window`."""

    def window(self, config: Config) -> int | None:
        """The window, when it is switched on (Qwen2Config.__post_init__)."""
        return super().window(config) if config.flag("use_sliding_window") else None


class Gemma3(Decoder):
    """Gemma 3: with bidirectional attention the window is read as half of it plus one."""

    def window(self, config: Config) -> int | None:
        """The window (Gemma3TextConfig.__post_init__)."""
        window = super().window(config)
        if window is not None and config.flag("use_bidirectional_attention"):
            window = window // 2 + 1
        return window


class ModernBertDecoder(Decoder):
    """The window is half of `local_attention` (ModernBertDecoderConfig)."""

    def window(self, config: Config) -> int | None:
        """`sliding_window` where the file states it, else local_attention // 2."""
        stated = super().window(config)
        return stated or config.count("local_attention") // 2
