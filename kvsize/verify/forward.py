"""A real model with random weights, fed a prompt and then single tokens, with a cache."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.models.auto import modeling_auto

from kvsize.verify import caches

# The model mappings whose classes generate with a cache: encoder-decoders first.
SEQ2SEQ = (
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
)
CAUSAL = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"
GENERATING = (
    *SEQ2SEQ,
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    CAUSAL,
)
# Text decoders that generate, of classes whose own forward takes no cache.
DECODERS = {"BlipForConditionalGeneration": "BlipTextLMHeadModel"}
# Ids below FIRST_ID are special in many vocabularies, and those from TOP_ID on in the toys'.
FIRST_ID, TOP_ID = 5, 80
CACHE_KEYWORDS = ("cache", "past_key_values", "cache_params", "state", "mems")
# Their forward takes all the tokens each time and skips those in the cache itself.
FED_ALL_TOKENS = {"CpmAntForCausalLM"}


def class_name(names: str | tuple[str, ...]) -> str:
    """The first class of a mapping's entry."""
    return names if isinstance(names, str) else names[0]


def model_types() -> dict[str, str]:
    """Every model type that generates, with the class that does.

    A type that is both an encoder-decoder and, by its decoder alone, a causal model is there
    twice: `bart`, and `bart/causal`.
    """
    found: dict[str, str] = {}
    for mapping in GENERATING:
        for model_type, names in getattr(modeling_auto, mapping, {}).items():
            found.setdefault(model_type, class_name(names))
    causal = getattr(modeling_auto, CAUSAL)
    types = [model_type for mapping in SEQ2SEQ for model_type in getattr(modeling_auto, mapping)]
    both = {f"{name}/causal": class_name(causal[name]) for name in types if name in causal}
    return dict(sorted((found | both).items()))


def candidates(config: Any, model_type: str) -> Iterator[tuple[str, Any, str]]:
    """The classes that can run `config`: (what is built, its config, the class's name).

    The model type's own class, then, for a composite model, its text decoder alone.
    """
    text = config.get_text_config(decoder=True)
    name = model_types()[model_type]
    if hasattr(config, "thinker_config"):
        # What generates text is a class of its own; the whole has no forward.
        thinker = name.replace("ForConditionalGeneration", "ThinkerForConditionalGeneration")
        yield "thinker", config.thinker_config, thinker
        return
    if name in DECODERS:
        yield "text decoder", text, DECODERS[name]
        return
    whole = isinstance(config, getattr(transformers, name).config_class)
    yield ("whole", config, name) if whole else ("text decoder", text, name)
    if not whole:
        yield "whole", config, name
    causal = getattr(modeling_auto, CAUSAL)
    # An encoder-decoder's decoder alone has another cache than the whole.
    if text is not config and text.model_type in causal and not config.is_encoder_decoder:
        yield "text decoder", text, class_name(causal[text.model_type])


def build(config: Any, name: str, dtype: torch.dtype) -> Any:
    """The model of `config`, its weights random."""
    torch.manual_seed(0)
    with torch.no_grad():
        cls = getattr(transformers, name)
        return cls._from_config(config, dtype=dtype).eval()


@dataclass
class EncoderOutput(BaseModelOutputWithPooling):
    """An encoder's output with everything that some decoder asks of it."""

    attention_mask: Any = None
    router_logits: Any = None
    encoder_router_logits: Any = None


def streams(model: Any) -> tuple[int, str] | None:
    """How many token streams a step has, and whether they lie beside each other or in the batch."""
    config = model.config
    match type(model).__name__:
        case "DiaForConditionalGeneration":
            return config.decoder_config.num_channels, "beside"
        case "KyutaiSpeechToTextForConditionalGeneration":
            return config.num_codebooks + 1, "beside"
        case name if name.startswith("Musicgen"):
            return config.get_text_config(decoder=True).num_codebooks, "in the batch"
        case _:
            return None


def _cache_keyword(model: Any) -> str | None:
    """The name of the forward's argument for the cache, where it states one."""
    parameters = inspect.signature(model.forward).parameters
    return next((key for key in CACHE_KEYWORDS if key in parameters), None)


def _images(model: Any, ids: torch.Tensor) -> dict[str, Any]:
    """What a class demands beside text: images, of no tokens where that can be.

    Images that lie in the prompt take up its tokens; these leave the text as it is.
    """
    config, batch = model.config, len(ids)
    match type(model).__name__:
        case "Kosmos2ForConditionalGeneration":
            width = config.text_config.embed_dim
            none = torch.zeros((batch, 0, width))
            return {"image_embeds": none, "image_embeds_position_mask": torch.zeros_like(ids)}
        case "IdeficsForVisionText2Text":
            seen = torch.zeros((batch, 1, 4, config.vision_config.embed_dim))
            mask = torch.ones((*ids.shape, 1), dtype=torch.long)
            return {"image_encoder_embeddings": seen, "image_attention_mask": mask}
        case "VoxtralRealtimeForConditionalGeneration":
            tokens = ids.shape[1] * config.downsample_factor
            return {
                "encoder_inputs_embeds": torch.zeros(
                    (batch, tokens, config.audio_config.hidden_size)
                )
            }
        case _:
            return {}


class Runner:
    """Feeds one model; remembers which keyword its forward takes for the cache."""

    def __init__(
        self, model: Any, batch: int, encoder_tokens: int, encoder_width: int | None = None
    ) -> None:
        self.model = model
        self.batch = batch
        self.cache_keyword: str | None = _cache_keyword(model) or _cache_keyword(
            transformers.LlamaForCausalLM
        )
        self.encoder_decoder: bool = bool(model.config.is_encoder_decoder)
        self.encoder: Any = None
        if self.encoder_decoder:
            self.encoder = self._encoder_output(encoder_tokens, encoder_width)

    def _encoder_output(self, tokens: int, width: int | None) -> EncoderOutput:
        """What an encoder would hand over: only its shape matters to the cache."""
        decoder = self.model.config.get_text_config(decoder=True)
        width = width or getattr(decoder, "cross_hidden_size", None) or decoder.hidden_size
        weights = next(self.model.parameters())
        shape = (self.batch, tokens, width)
        states = torch.randn(shape, dtype=weights.dtype, device=weights.device)
        return EncoderOutput(last_hidden_state=states, pooler_output=states)

    def cache(self, kind: str, length: int) -> Any:
        """The cache that generate() would make; None where the model makes its own.

        `kind`: dynamic or static, the latter for `length` tokens.
        """
        model = self.model
        if not getattr(model, "_supports_default_dynamic_cache", lambda: True)():
            return None
        settings = copy.deepcopy(model.generation_config)
        settings.cache_implementation = "static" if kind == "static" else None
        settings.num_beams = settings.num_return_sequences = 1
        settings.use_cache = True
        # A model remembers its longest static cache and makes the next as long.
        prepare = getattr(model, "_prepare_cache_for_generation", None)
        if prepare is None or len(inspect.signature(prepare).parameters) != 5:
            return caches.plain_cache(model.config, kind, length)
        model._previous_max_cache_length = -1  # noqa: SLF001
        made: dict[str, Any] = {}
        if self.encoder is not None:
            made["encoder_outputs"] = (self.encoder.last_hidden_state,)
        prepare(settings, made, None, self.batch, length)
        return next((made[key] for key in CACHE_KEYWORDS if key in made), None)

    def ids(self, length: int) -> torch.Tensor:
        """Random token ids, the same for the same length."""
        generator = torch.Generator().manual_seed(length)
        shape = (self.batch, length)
        ids = torch.randint(FIRST_ID, TOP_ID, shape, generator=generator)
        match streams(self.model):
            case None:
                return ids
            case count, "beside":
                return ids[..., None].repeat(1, 1, count)
            case count, _:
                return ids.repeat(count, 1)

    def feed(self, ids: torch.Tensor, seen: int, cache: Any) -> tuple[Any, Any]:
        """One forward pass over the tokens after the first `seen`: its output, and the cache.

        A cache of None lets the model make its own.
        """
        if type(self.model).__name__ not in FED_ALL_TOKENS:
            ids = ids[:, seen:]
        keywords: dict[str, Any] = {"use_cache": True}
        if cache is not None and self.cache_keyword is not None:
            keywords[self.cache_keyword] = cache
        output = self._forward(ids, keywords)
        returned = (output.get(key) for key in CACHE_KEYWORDS)
        found = next((made for made in returned if made is not None), cache)
        if cache is not None and getattr(found, "self_attention_cache", None) is cache:
            # BLIP pairs what it is given with a cache of the image, which is empty without one.
            found = cache
        return output, found

    def greedy(self, prompt: int, new: int, *, cached: bool) -> list[list[int]]:
        """The ids that greedy decoding emits, with the cache or by reading everything anew."""
        ids = self.ids(prompt)
        cache = self.cache("dynamic", prompt + new) if cached else None
        for step in range(new):
            seen = prompt + step - 1 if step and cached else 0
            if cached:
                output, cache = self.feed(ids, seen, cache)
            else:
                output = self._forward(ids, {"use_cache": False})
            following = output.logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, following], dim=1)
        return [[int(token) for token in row] for row in ids[:, prompt:]]

    def _forward(self, ids: torch.Tensor, keywords: dict[str, Any]) -> Any:
        keywords |= _images(self.model, ids)
        if self.encoder is None:
            keywords["input_ids"] = ids
        else:
            keywords |= {"encoder_outputs": self.encoder, "decoder_input_ids": ids}
        with torch.no_grad():
            return self.model(**keywords)
