"""The public API as a typed caller uses it: checked by mypy and pyright, never run."""

from typing import assert_type

import kvsize

model = kvsize.load("llama-3.1-70b")
assert_type(model, kvsize.Model)
assert_type(kvsize.load({"model_type": "llama"}, offline=True), kvsize.Model)

size = kvsize.size(model, context=32_768, sequences=4, options={"cache": "static"})
assert_type(size, kvsize.Size)
assert_type(size.total_bytes, int)
assert_type(size.layer_bytes, tuple[int, ...])
assert_type(size.allocated_bytes, int)
assert_type(size.prefill_bytes, int)
assert_type(size.groups, tuple[kvsize.LayerGroup, ...])

fit = kvsize.fit(model, engine="vllm", context=None, kv_memory=40 * 2**30)
assert_type(fit, kvsize.Fit)
assert_type(fit.blocks, int)
assert_type(fit.concurrency, float)

try:
    kvsize.load("no-such-model")
except kvsize.KvsizeError as error:
    assert_type(error.message, str)
    assert_type(error.hint, str)
