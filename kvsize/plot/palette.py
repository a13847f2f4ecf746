"""Colours that readers with any colour vision tell apart, on white paper and on dark pages.

Okabe and Ito, "Color Universal Design" (2008), less black and yellow, which one of the two
backgrounds swallows. Shapes tell the curves apart as well: a picture reads in grey, too.
"""

from __future__ import annotations

from typing import Any

Style = dict[str, Any]
"""Keyword arguments of matplotlib's."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "<")
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "++++")
INK = "#1f2328"
_INK_ON_DARK = "#e6edf3"
_BLUE_ON_DARK = "#4aa8e0"

# matplotlib writes colours into style attributes; a viewer that knows no style sheets, such as a
# printer's, leaves them as they are.
DARK_SHEET = "".join(
    f'[style*="{kind}: {light}"]{{{kind}:{dark}!important}}'
    for light, dark in ((INK, _INK_ON_DARK), (COLOURS[0], _BLUE_ON_DARK))
    for kind in ("fill", "stroke")
)
