"""Laws of llama.cpp's caches, over architectures, contexts and options."""

from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize.engines.llama_cpp.types import CACHE_TYPES
from kvsize.families import gguf as family
from kvsize.gguf.architectures import known_architectures
from kvsize.model import Raw

contexts = st.integers(1, 300_000)
# Keys that satisfy every architecture at once; each reads those it knows.
KEYS = {
    "block_count": 8,
    "context_length": 8192,
    "embedding_length": 512,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 32,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
    "attention.kv_lora_rank": 64,
    "attention.sliding_window": 100,
    "attention.sliding_window_pattern": [True, False] * 4,
    "attention.indexer.key_length": 32,
    "attention.indexer.top_k": 8,
    "attention.indexer.kpool": 4,
    "attention.indexer.types": [1, 0] * 4,
    "attention.compress_ratios": [0, 4, 128, 4] * 2,
    "feed_forward_length": 0,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 128,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "wkv.head_size": 64,
    "shortconv.l_cache": 3,
    "kda.head_dim": 16,
    "hyper_connection.count": 4,
}
DRAFTS = {"eagle3", "dflash", "gemma4-assistant"}
architectures = st.sampled_from([name for name in known_architectures() if name not in DRAFTS])


def load(arch):
    keys = {f"{arch}.{key}": item for key, item in KEYS.items()}
    return family.build(Raw({"general.architecture": arch, **keys}, arch, arch, "gguf"))


def size(arch, context, **options):
    sequences = options.pop("sequences", 1)
    return kvsize.size(
        load(arch), context=context, sequences=sequences, engine="llama.cpp", options=options
    )


@settings(deadline=None)
@given(architectures, contexts, contexts)
def test_grows_with_the_context(arch, one, other):
    shorter, longer = sorted((one, other))
    assert size(arch, shorter).total_bytes <= size(arch, longer).total_bytes


@settings(deadline=None)
@given(architectures, contexts, st.integers(1, 16), st.booleans())
def test_cells_are_padded_and_hold_what_was_asked(arch, context, sequences, unified):
    try:
        found = size(arch, context, sequences=sequences, kv_unified=unified)
    except kvsize.EngineRefuses:
        return
    assert found.details["n_ctx"] >= context * sequences
    for cache in found.details["caches"]:
        if cache["cache"] != "recurrent" and "cells" in cache:
            assert cache["cells"] % 256 == 0
            assert cache["cells"] <= found.details["n_ctx_seq"]


@settings(deadline=None)
@given(architectures, contexts, st.sampled_from(sorted(CACHE_TYPES)))
def test_a_total_is_the_sum_of_its_parts(arch, context, kind):
    try:
        found = size(arch, context, type_k=kind, type_v=kind)
    except kvsize.EngineRefuses:
        return
    assert sum(found.layer_bytes) == found.total_bytes
    assert sum(group.total_bytes for group in found.groups) == found.total_bytes
    assert len(found.details["log"]) == len(found.groups)


@settings(deadline=None)
@given(architectures, contexts)
def test_a_full_window_never_takes_less(arch, context):
    assert size(arch, context).total_bytes <= size(arch, context, swa_full=True).total_bytes


@settings(deadline=None)
@given(architectures, contexts, st.integers(1, 8))
def test_sequences_never_make_it_smaller(arch, context, sequences):
    one = size(arch, context).total_bytes
    try:
        several = size(arch, context, sequences=sequences)
    except kvsize.EngineRefuses:
        return
    assert one <= several.total_bytes


@settings(deadline=None)
@given(contexts, st.integers(1, 8))
def test_plain_caches_do_not_depend_on_how_streams_are_split(context, sequences):
    multiple = context * 256
    split = size("llama", multiple, sequences=sequences)
    unified = size("llama", multiple, sequences=sequences, kv_unified=True)
    assert split.total_bytes == unified.total_bytes


@settings(max_examples=300, deadline=None)
@given(architectures, st.integers(0, 4), st.integers(1, 12))
def test_draft_layers_and_odd_depths_are_sized_or_told(arch, nextn, layers):
    changes = {f"{arch}.block_count": layers, f"{arch}.nextn_predict_layers": nextn}
    keys = {"general.architecture": arch} | {f"{arch}.{key}": item for key, item in KEYS.items()}
    try:
        model = family.build(Raw(keys | changes, arch, arch, "gguf"))
        found = kvsize.size(model, context=512, engine="llama.cpp")
    except kvsize.KvsizeError:
        return
    assert found.total_bytes >= 0
    assert len(found.layer_bytes) == len(model.layers) >= layers
