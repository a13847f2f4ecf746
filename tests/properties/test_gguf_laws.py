"""Whatever a .gguf holds, it is sized or told; never a traceback."""

from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize.families import gguf as family
from kvsize.gguf.architectures import known_architectures
from kvsize.gguf.header import read_header
from kvsize.gguf.hparams import has_required_keys
from kvsize.model import Raw
from tests.gguf_files import header, metadata

WHOLE = header(metadata("gemma3", attention__sliding_window=512, tokenizer__ggml__model="gpt2"))
values = st.one_of(
    st.integers(-2, 2**33),
    st.integers(0, 64),
    st.booleans(),
    st.floats(),
    st.sampled_from(["", "llama"]),
    st.none(),
    st.lists(st.integers(-1, 9), max_size=9),
    st.lists(st.booleans(), min_size=8, max_size=8),
)


def sized_or_told(data):
    def read(offset, length):
        return data[offset : offset + length]

    for size in (None, len(data)):
        for enough in (None, has_required_keys):
            try:
                found = read_header(read, "x.gguf", size=size, enough=enough)
                model = family.build(Raw(found.metadata, "x", "x.gguf", "gguf"))
                kvsize.size(model, context=512, engine="llama.cpp")
            except kvsize.KvsizeError as error:
                told = str(error)
            else:
                told = "sized"
            assert told


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes(data):
    sized_or_told(data)
    sized_or_told(WHOLE[:24] + data)


@settings(deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=8))
def test_a_header_with_bytes_overwritten(at, data):
    sized_or_told(WHOLE[:at] + data + WHOLE[at + len(data) :])


@settings(deadline=None)
@given(
    st.sampled_from(known_architectures()),
    st.dictionaries(
        st.sampled_from(
            """
            block_count context_length embedding_length attention.head_count
            attention.head_count_kv attention.key_length attention.value_length
            attention.key_length_swa attention.key_length_mla attention.value_length_mla
            attention.kv_lora_rank attention.sliding_window attention.sliding_window_pattern
            attention.shared_kv_layers attention.causal attention.recurrent_layers
            attention.indexer.key_length attention.indexer.top_k attention.indexer.types
            attention.compress_ratios feed_forward_length full_attention_interval num_loops
            nextn_predict_layers ssm.conv_kernel ssm.inner_size ssm.state_size ssm.group_count
            wkv.head_size token_shift_count shortconv.l_cache kda.head_dim ple.layers
            leading_dense_block_count
            """.split()  # noqa: SIM905 - a list of forty strings reads worse
        ),
        values,
    ),
)
def test_any_values(arch, changes):
    keys = metadata(arch) | {f"{arch}.{key}": value for key, value in changes.items()}
    try:
        model = family.build(Raw(keys, "x", "x.gguf", "gguf"))
        found = kvsize.size(model, context=512, engine="llama.cpp")
    except kvsize.KvsizeError as error:
        assert error.hint  # noqa: PT017 - which error it is, depends on the values
        return
    assert found.total_bytes >= 0
