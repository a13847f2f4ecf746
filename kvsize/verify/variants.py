"""The dimensions in which every model type is tried.

Odd numbers of heads, one KV head, a head width other than hidden_size / heads, windows shorter
than the prompt, layer counts that no pattern divides, and keys left out so that the class's own
defaults apply.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvsize.verify.toys import Dims, toy_config

if TYPE_CHECKING:
    from kvsize.verify.trial import Outcome

Trial = Callable[..., "Iterator[Outcome]"]
# A window that no variant states is the class's own, longer than any prompt here.
ASSUMED_WINDOW = 8


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of dimensions; `decode`: compare greedy decoding too."""

    dims: Dims
    decode: bool = False

    def outcomes(self, model_type: str, trial: Trial) -> Iterator[Outcome]:
        """The trial's outcomes, with towers as small as can be, else as thin as can be."""
        from kvsize.verify.trial import Outcome, runs

        wanted = runs(self.dims.window or ASSUMED_WINDOW)
        failed: list[Outcome] = []
        for thin in (False, True):
            try:
                raw = json.loads(json.dumps(toy_config(model_type, self.dims, thin_towers=thin)))
            except Exception as error:  # noqa: BLE001 - whatever the class raises is the answer
                failed.append(Outcome("not built", "", f"{type(error).__name__}: {error}"))
                continue
            outcomes = list(trial(model_type, raw, wanted, decode=self.decode))
            if any(outcome.status != "not built" for outcome in outcomes):
                yield from outcomes
                return
            failed.extend(outcomes)
        yield from failed[:1]


VARIANTS: dict[str, Variant] = {
    "plain": Variant(Dims(), decode=True),
    "odd": Variant(Dims(hidden=60, heads=3, kv_heads=1, head_dim=20, layers=5, window=6)),
    "derived": Variant(Dims(hidden=72, heads=6, kv_heads=3, head_dim=None, layers=7, window=5)),
}
WIDE = VARIANTS | {
    "three": Variant(Dims(layers=3, heads=2, kv_heads=2, head_dim=8, window=3)),
    "one layer": Variant(Dims(layers=1)),
    "all layers": Variant(Dims(hidden=32, heads=2, kv_heads=1, head_dim=16, layers=None, window=4)),
    "own window": Variant(Dims(window=None, layers=6)),
}
