"""Write `kvsize/data/class_defaults.json` from the installed transformers.

    python tools/generate_class_defaults.py            writes the file
    python tools/generate_class_defaults.py --check    exits 1 and prints a diff when it is stale

The file holds, for every model type that can generate text (and every config nested in one): the
name of its config class, the keys it stores under another name, the defaults of the keys that can
decide a cache, and which class fills a nested config that a file leaves out. An upgrade of
transformers shows as a diff of this file.
"""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TARGET = Path(__file__).parents[1] / "kvsize" / "data" / "class_defaults.json"

# The model mappings whose classes generate with a cache.
GENERATING = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
    "MODEL_FOR_TEXT_TO_SPECTROGRAM_MAPPING_NAMES",
)
# A key can decide a cache when its name has one of these words …
RELEVANT = re.compile(
    r"layer|head|window|chunk|kv|d_model|n_embd|emb_dim|embed_dim|hidden_size|hidden_dim|pattern"
    r"|period|offset|interval|lora_rank|qk_|conv|ssm|mamba|linear_|state_size|expand|n_groups"
    r"|index|max_.*position|n_positions|block_types|share|loop|cycle|multi_query|new_decoder"
    r"|attention_k_eq|is_encoder_decoder|is_decoder|d_state|d_inner|prompt_length|ngram|hc_|ple_"
    r"|cca|compress|max_sequence_length|max_seq|model_max_length|n_ctx|attn_config|attn_idxs"
    r"|local_attention$|use_bidirectional|source_pos|target_pos|use_dsa|patch_size|image_size"
    r"|encoder_length|sub_layer|bytes_per|attn_type|recurren|first_k_dense|intermediate_size"
    r"|no_rope"
)
# … and none of these, which belong to training, generation, position encoding or other towers.
IRRELEVANT = re.compile(
    r"drop|norm|init|bias|loss|token_id|_act$|activation|rope_(theta|scal|param|type)|rotary|coef"
    r"|vision|audio|image_token|layerdrop|router|expert|mlp_layer|output_|scale|temperature|tie_"
    r"|lr_|jitter|classifier|pruned|id2label|label2id|chunk_size_feed_forward|use_cache|eps$|_fn"
    r"|speaker|codec|mel_|num_mask|mask_|ctc|adapter|tdnn|diversity|default_theta|std|alpha"
)
PLAIN = (int, float, bool, str, type(None))


def relevant(key: str) -> bool:
    return bool(RELEVANT.search(key)) and not IRRELEVANT.search(key)


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(k, str) and plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(plain(item) for item in value)
    return isinstance(value, PLAIN)


def defaults(cls: type) -> dict[str, Any]:
    found = {}
    for field in dataclasses.fields(cls):
        value = field.default
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if value is not dataclasses.MISSING and relevant(field.name) and plain(value):
            found[field.name] = value
    return found


def sections(cls: Any) -> dict[str, Any]:
    found = {}
    post_init = inspect.getsource(cls.__post_init__)
    for key, spec in sorted(cls.sub_configs_defaults.items()):
        kept = {k: v for k, v in sorted(spec.init_kwargs.items()) if relevant(k) and plain(v)}
        found[key] = {"model_type": spec.model_type} | ({"defaults": kept} if kept else {})
        if isinstance(spec.config_class, type) and issubclass(
            spec.config_class, transformers.PreTrainedConfig
        ):
            # A fixed class reads the section whatever model_type the section states.
            found[key]["fixed"] = True
        if f"init_kwargs, **self.{key}}}" in post_init:
            # These classes fill a section that the file states in part.
            found[key]["merged"] = True
    return found


def facts(cls: Any) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": cls.__name__}
    renamed = {k: v for k, v in sorted(cls.attribute_map.items()) if relevant(k) or relevant(v)}
    parts = {"attribute_map": renamed, "defaults": defaults(cls), "sections": sections(cls)}
    return entry | {key: value for key, value in parts.items() if value}


def wanted() -> dict[str, Any]:
    """Config classes of the generating model types and of everything nested in them."""
    names = {n for mapping in GENERATING for n in getattr(modeling_auto, mapping)}
    found: dict[str, Any] = {}
    queue = [CONFIG_MAPPING[name] for name in sorted(names)]
    while queue:
        cls = queue.pop()
        if cls.model_type in found:
            continue
        found[cls.model_type] = cls
        for key, spec in cls.sub_configs_defaults.items():
            if spec.model_type and not re.search(r"vision|audio|speech|codec|encoder", key):
                nested = spec.config_class
                fixed = hasattr(nested, "model_type")
                queue.append(nested if fixed else CONFIG_MAPPING[spec.model_type])
    # A name may map to a class whose own model_type differs (gpt-sw3 is read by GPT2Config).
    found.update({name: CONFIG_MAPPING[name] for name in names})
    return found


def render() -> str:
    classes = {name: facts(cls) for name, cls in sorted(wanted().items())}
    others = sorted(set(CONFIG_MAPPING.keys()) - set(classes))
    lines = [f'  "{name}": {json.dumps(entry)}' for name, entry in classes.items()]
    body = ",\n".join(lines)
    return (
        f'{{"transformers": "{transformers.__version__}",\n'
        f'"without_cache": {json.dumps(others)},\n"classes": {{\n{body}\n}}}}\n'
    )


def main() -> int:
    fresh = render()
    if "--check" not in sys.argv:
        TARGET.write_text(fresh, encoding="utf-8")
        return 0
    committed = TARGET.read_text(encoding="utf-8")
    sys.stdout.writelines(
        difflib.unified_diff(
            committed.splitlines(keepends=True), fresh.splitlines(keepends=True), "committed", "now"
        )
    )
    return int(fresh != committed)


if __name__ == "__main__":
    sys.exit(main())
