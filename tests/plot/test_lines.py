"""The data of a picture: exact points, tight crossings, budgets as `kvsize fit` has them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsize
from kvsize.capacity.inverse import max_context
from kvsize.errors import EngineRefuses, UsageError
from kvsize.plot.asking import Case, Memory, Wanted, context_range
from kvsize.plot.chart import Chart
from kvsize.plot.lines import chart, explorable, kinds
from kvsize.units import GIB

LLAMA, GEMMA = kvsize.load("llama-3.1-8b"), kvsize.load("gemma-3-27b")
NOTHING = Memory()


def wanted(*models: kvsize.Model, **changes: object) -> Wanted:
    return Wanted(models=models, **{"options": {}, **changes})  # type: ignore[arg-type]


def case_of(engine: str) -> Case:
    """Llama's only curve."""
    (case,) = wanted(LLAMA, engines=(engine,)).cases()
    return case


def figures(picture: Chart, options: dict[str, object] | None = None) -> list[tuple[int, int]]:
    """Every point, and what `kvsize.size` says there."""
    models = {model.name: model for model in (LLAMA, GEMMA)}
    return [
        (
            point.size_bytes,
            kvsize.size(
                models[series.model],
                context=point.context,
                sequences=series.sequences,
                engine=series.engine,
                kv_dtype=series.asked_kv_dtype,
                options=options,
            ).total_bytes,
        )
        for series in picture.series
        for point in series.points
    ]


def test_every_point_is_exact() -> None:
    picture = chart(wanted(LLAMA, GEMMA, sequences=(1, 16)), 1000, 300000, NOTHING)
    pairs = figures(picture)
    assert len(pairs) > 500
    assert all(drawn == exact for drawn, exact in pairs)
    for series in picture.series:
        contexts = [point.context for point in series.points]
        assert (contexts[0], contexts[-1]) == (1000, 300000)
        assert {131071, 131072, 131073} <= set(contexts)


def test_the_product_of_what_is_asked_for() -> None:
    asked = wanted(GEMMA, engines=("vllm", "llama.cpp"), kv_dtypes=("auto", "fp8", "q8_0"))
    picture = chart(asked, 1024, 4096, NOTHING)
    assert [series.label for series in picture.series] == [
        "vllm 0.33.0, bfloat16",
        "vllm 0.33.0, fp8",
        "llama.cpp 0.5.0-dev base + swa, f16",
        "llama.cpp 0.5.0-dev base + swa, q8_0",
    ]
    assert picture.subtitle == "gemma-3-27b, 1 sequence"
    assert [note.partition(":")[0] for note in picture.notes] == ["left out", "left out"]
    assert picture.notes[0].startswith("left out: gemma-3-27b, vllm, q8_0: ")
    assert all(drawn == exact for drawn, exact in figures(picture))


def test_one_curve_is_named_for_its_model() -> None:
    picture = chart(wanted(LLAMA), 1024, 2048, NOTHING)
    assert picture.series[0].label == "llama-3.1-8b"
    assert picture.subtitle == "transformers 5.24.0 DynamicCache, bfloat16, 1 sequence"


@given(budget=st.integers(2**27, 2**38), model=st.sampled_from([LLAMA, GEMMA]))
@settings(max_examples=10, deadline=None)
def test_a_crossing_is_the_largest_context_that_fits(budget, model) -> None:
    picture = chart(wanted(model), 1024, 262144, Memory(budgets=(str(budget),)))
    (crossing,) = picture.crossings

    def taken(context: int) -> int:
        return kvsize.size(model, context=context).allocated_bytes

    if crossing.context:
        assert taken(crossing.context) <= budget
        exact = kvsize.size(model, context=crossing.context).total_bytes
        assert crossing.size_bytes == exact
    else:
        assert crossing.size_bytes == 0
    assert crossing.everywhere == (crossing.context == 262144)
    if not crossing.everywhere:
        assert taken(crossing.context + 1) > budget
        if crossing.context >= 1024:
            points = dict(picture.series[0].pairs())
            assert {crossing.context, crossing.context + 1} <= set(points)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("sequences", [1, 3])
def test_a_crossing_is_what_fit_says(engine: str, sequences: int) -> None:
    asked = wanted(GEMMA, engines=(engine,), sequences=(sequences,))
    picture = chart(asked, 1024, 131072, Memory(budgets=("8GiB",)))
    (case,) = asked.cases()
    (crossing,) = picture.crossings
    assert 1024 < crossing.context < 131072
    assert crossing.context == max_context(case.setup(), sequences, 8 * GIB, 131072)
    assert [note.partition(" needs more memory")[0] for note in picture.notes] == (
        [engine] if crossing.size_bytes * 20 < 8 * GIB * 19 else []
    )


def test_a_crossing_below_what_is_shown_is_found_too() -> None:
    picture = chart(wanted(LLAMA), 4096, 8192, Memory(budgets=("131072", "131071")))
    assert [crossing.context for crossing in picture.crossings] == [1, 0]
    assert picture.series[0].points[0].context == 4096


def test_a_gpu_leaves_what_fit_says() -> None:
    picture = chart(wanted(LLAMA, engines=("vllm",)), 1024, 2**17, Memory(gpus=("l4",)))
    (line,) = picture.budgets
    from kvsize.capacity import asked
    from kvsize.capacity.layout import Layout

    machine = asked.machine(LLAMA, "l4", "", "", "", "", "")
    budget = asked.question(LLAMA, machine, "vllm", "", "auto", {}).plan.budget(Layout())
    assert (line.size_bytes, (line.least_bytes, line.most_bytes)) == (
        budget.best_bytes,
        budget.range_bytes,
    )
    assert line.meaning == "left on l4 beside the weights of llama-3.1-8b in vllm"
    (crossing,) = picture.crossings
    assert crossing.least_context < crossing.context < crossing.most_context
    assert crossing.least_context == max_context(
        case_of("vllm").setup(), 1, line.least_bytes, 2**17
    )


def test_each_model_has_its_own_line_and_full_gpus_none() -> None:
    big = kvsize.load("llama-3.1-70b")
    picture = chart(wanted(LLAMA, big), 1024, 2048, Memory(budgets=("1GiB",), gpus=("h100",)))
    assert [(line.label.partition(":")[0], line.series) for line in picture.budgets] == [
        ("1.00 GiB", (0, 1)),
        ("h100, llama-3.1-8b", (0,)),
    ]
    assert picture.notes == (
        "Nothing is left on h100 beside the weights of llama-3.1-70b in transformers.",
    )
    assert [(each.series, each.budget) for each in picture.crossings] == [(0, 0), (0, 1), (1, 0)]


def test_a_gpu_can_be_stated_by_its_memory() -> None:
    memory = Memory(gpus=("h100",), gpu_memory=("64GiB",))
    named, stated = chart(wanted(LLAMA), 1024, 2048, memory).budgets
    assert named.label.startswith("h100: ")
    assert stated.label == "a GPU of 64GiB: 48.04 GiB"
    assert stated.size_bytes < named.size_bytes


def test_weights_can_be_stated() -> None:
    one, other = (
        chart(wanted(LLAMA), 1024, 2048, Memory(gpus=("h100",), weights=weights)).budgets[0]
        for weights in ("10GiB", "20GiB")
    )
    assert one.size_bytes - other.size_bytes == 10 * GIB


def test_several_gpus_show_the_fullest() -> None:
    asked = wanted(LLAMA, engines=("vllm",), tensor_parallel_size=4)
    picture = chart(asked, 1024, 2048, Memory(gpus=("h100",)))
    assert picture.quantity == "KV cache of the fullest GPU"
    assert picture.series[0].points[-1].size_bytes == 2**28 // 4
    assert picture.budgets[0].meaning.startswith("left on each h100 ")


def test_a_curve_ends_where_the_engine_refuses() -> None:
    asked = wanted(LLAMA, engines=("vllm", "transformers"))
    picture = chart(asked, 65536, 2**18, Memory(budgets=("64GiB",)))
    ends = [(series.points[-1].context, series.refused_beyond) for series in picture.series]
    assert ends == [(131072, 131072), (2**18, None)]
    assert picture.notes == ("vllm takes no more than 131,072 tokens of llama-3.1-8b.",)
    assert [crossing.everywhere for crossing in picture.crossings] == [True, True]


def test_what_no_engine_takes_is_an_error() -> None:
    with pytest.raises(UsageError, match="'fp8' is not a dtype that a plain tensor can have"):
        chart(wanted(LLAMA, kv_dtypes=("fp8",)), 1024, 2048, NOTHING)
    static = {"cache": "static", "max_cache_len": 512}
    with pytest.raises(EngineRefuses, match="cannot hold 1024 tokens"):
        chart(wanted(LLAMA, options=static), 1024, 2048, NOTHING)


def test_more_curves_than_can_be_told_apart() -> None:
    asked = wanted(LLAMA, GEMMA, sequences=tuple(range(1, 14)))
    with pytest.raises(UsageError, match="at most 24 curves, and 26 are asked for"):
        chart(asked, 1024, 2048, NOTHING)


def test_kinds_add_up_to_the_whole() -> None:
    picture = kinds(wanted(GEMMA, sequences=(3,)), 512, 40000, Memory(budgets=("4GiB",)))
    assert [series.label for series in picture.series] == [
        "52 × sliding window",
        "10 × full attention",
    ]
    for at in zip(*(series.pairs() for series in picture.series), strict=True):
        (context,) = {context for context, _ in at}
        whole = kvsize.size(GEMMA, context=context, sequences=3).total_bytes
        assert sum(size for _, size in at) == whole
    assert picture.extent()[1] == kvsize.size(GEMMA, context=40000, sequences=3).total_bytes
    (crossing,) = picture.crossings
    assert kvsize.size(GEMMA, context=crossing.context, sequences=3).total_bytes <= 4 * GIB


def test_kinds_of_one_cache_only() -> None:
    with pytest.raises(UsageError, match="--by kind shows one cache, and 2 are asked for"):
        kinds(wanted(GEMMA, LLAMA), 512, 40000, NOTHING)
    with pytest.raises(UsageError, match="--by kind splits the whole cache"):
        kinds(wanted(GEMMA, engines=("vllm",), tensor_parallel_size=2), 512, 40000, NOTHING)


def test_a_page_has_dtypes_and_sequences_to_choose_from() -> None:
    asked = wanted(LLAMA, engines=("vllm", "transformers"))
    picture = explorable(asked, 1024, 4096, NOTHING)
    found = {(each.engine, each.asked_kv_dtype, each.sequences) for each in picture.series}
    assert found == {
        (engine, dtype, count)
        for engine, dtype in (("vllm", "auto"), ("vllm", "fp8"), ("transformers", "auto"))
        for count in (1, 4, 16, 64)
    }
    assert picture.notes == ()
    assert all(drawn == exact for drawn, exact in figures(picture))


def test_ranges_of_contexts() -> None:
    assert context_range("1k:1m", ()) == (1024, 2**20)
    assert context_range("", (LLAMA, GEMMA)) == (1024, 131072)
    assert context_range("", (kvsize.load("gpt2"),)) == (64, 1024)
    for text, match in (
        ("1m:1k", r"--ctx 1m:1k is an empty range\."),
        ("8k:8k", r"--ctx 8k:8k is an empty range\."),
        ("8k", r"--ctx '8k' is no range of contexts, and a curve needs one\."),
        ("1k:x", r"'x' is not a number of tokens\."),
    ):
        with pytest.raises(UsageError, match=match):
            context_range(text, ())
