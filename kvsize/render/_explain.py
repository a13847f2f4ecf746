"""An explanation as sections of sentences and small tables, drawn as text or Markdown."""

from __future__ import annotations

from json import dumps
from typing import TYPE_CHECKING

from kvsize.record import as_dict
from kvsize.render._sections import (
    Section,
    brief,
    chosen,
    plural,
    sections_markdown,
    sections_text,
)
from kvsize.report import GROWTH_TOKENS
from kvsize.units import format_bytes, format_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvsize.explain import Explanation, Key, QueryRows, Sharing, Term
    from kvsize.render import Look

    Drawing = Callable[[Explanation, Look], str]

KEY_RANK = 4  # batch, heads, tokens, width: what keys and values have, and states may not


def text(explanation: Explanation, look: Look) -> str:
    """Plain text, wrapped to the look's width."""
    return sections_text(sections(explanation, look.unit), look.width)


def markdown(explanation: Explanation, look: Look) -> str:
    """GitHub-flavoured Markdown: a heading, a table and sentences for each section."""
    return sections_markdown(sections(explanation, look.unit))


def sections(explanation: Explanation, unit: str | None) -> Iterator[Section]:
    """The figure, the keys, the tensors, the query rows and the shared heads, in that order."""
    yield _figure(explanation, unit)
    rows = [(key.key, brief(key.value), _origin(key)) for key in explanation.keys]
    yield Section("What it rests on", (), (("key", "value", "from"), *rows))
    for term in explanation.terms:
        yield _term(term, unit)
    yield _sum(explanation, unit)
    if explanation.query_rows is not None:
        yield _queries(explanation.query_rows)
    if explanation.sharing:
        yield _shared(explanation.sharing)


def _figure(explanation: Explanation, unit: str | None) -> Section:
    found = explanation
    known = ", ".join(name for name in (found.hub_id, found.source) if name)
    detail = f", {found.attention_detail}" if found.attention_detail else ""
    dtype = f"{found.kv_dtype} (assumed)" if found.kv_dtype_assumed else found.kv_dtype
    return Section(
        f"{found.model} ({known}): {format_bytes(found.total_bytes, unit)}",
        (
            f"{plural(found.sequences, 'sequence')} of {format_tokens(found.context)} tokens; "
            f"{found.engine} {found.engine_version} {found.cache}, {dtype}.",
            f"{found.attention}{detail}.",
        ),
    )


def _origin(key: Key) -> str:
    if key.origin == "config.json":
        return key.origin if key.detail == key.key else f"{key.origin}: {key.detail}"
    return f"{key.origin}: {key.detail}" if key.detail else key.origin


def _term(term: Term, unit: str | None) -> Section:
    rows = [
        (
            f"{tensor.name} {tensor.axes}",
            f"{_product(tensor.shape)} × {tensor.element_bytes} B ({tensor.dtype})",
            f"= {tensor.total_bytes:,} B",
        )
        for tensor in term.tensors
    ]
    one = sum(tensor.total_bytes for tensor in term.tensors)
    each = f"{term.layers} × {one:,} B = " if term.tensors else ""
    total = f"{each}{term.total_bytes:,} B = {format_bytes(term.total_bytes, unit)}"
    if not term.total_bytes:
        total = "Nothing is kept."
    header = (("one layer", "elements × bytes", ""),) if rows else ()
    by_head = rows and all(len(tensor.shape) == KEY_RANK for tensor in term.tensors)
    axes = " [batch, num_key_value_heads, seq_len, head_dim]" if by_head else ""
    title = f"{plural(term.layers, 'layer')}: {term.kind}{axes}"
    return Section(title, (total,), (*header, *rows))


def _product(shape: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in shape)


def _sum(explanation: Explanation, unit: str | None) -> Section:
    kept = [term.total_bytes for term in explanation.terms if term.total_bytes]
    added = f"{' + '.join(f'{size:,}' for size in kept)} = " if len(kept) > 1 else ""
    total = explanation.total_bytes
    grown = format_bytes(explanation.token_bytes, unit)
    return Section(
        "Together",
        (
            f"{added}{total:,} B = {format_bytes(total, unit)}",
            f"Each of the next {GROWTH_TOKENS} tokens adds {explanation.token_bytes:,} B = {grown} "
            "to a sequence.",
        ),
    )


def _queries(rows: QueryRows) -> Section:
    return Section(
        "Why queries are not cached",
        (
            "A token's query is used in one step, the one that computes the token; its key and "
            "value are read again by every later step. So keys and values are kept.",
            f"Without a cache each step computes the rows of all tokens again. For a prompt of "
            f"{rows.prompt:,}, {rows.new:,} new tokens, {plural(rows.sequences, 'sequence')} and "
            f"{plural(rows.num_attention_heads, 'query head')}, a layer computes "
            f"{rows.without_cache:,} query rows without a cache against {rows.with_cache:,} with "
            f"one: {rows.ratio:.1f}×.",
        ),
    )


def _shared(sharing: tuple[Sharing, ...]) -> Section:
    return Section(
        "Which query head reads which KV head",
        ("Query head h reads KV head h // (num_attention_heads // num_key_value_heads).",),
        (
            ("layers", "query heads", "KV heads", "h //", "that is"),
            *(
                (
                    str(each.layers),
                    str(each.num_attention_heads),
                    str(each.num_key_value_heads),
                    str(each.group_size),
                    _groups(each),
                )
                for each in sharing
            ),
        ),
    )


def _groups(sharing: Sharing) -> str:
    """`0–7 read 0, 8–15 read 1, … 56–63 read 7`."""
    size, last = sharing.group_size, sharing.num_key_value_heads - 1
    if size == 1:
        return "each its own"
    if last == 0:
        return f"0–{size - 1} all read 0"
    shown = [0, 1, last] if last > 1 else [0, 1]
    words = [f"{head * size}–{head * size + size - 1} read {head}" for head in shown]
    return f"{words[0]}, {words[1]}, … {words[2]}" if last > 2 else ", ".join(words)


def json(explanation: Explanation, look: Look) -> str:  # noqa: ARG001 - a drawing's signature
    """The explanation's own fields."""
    return dumps(as_dict(explanation), indent=2, ensure_ascii=False) + "\n"


def drawing(format_name: str) -> Drawing:
    """How to draw an explanation in a format; UsageError where there is none of that name."""
    return chosen({"text": text, "markdown": markdown, "json": json}, format_name, "an explanation")
