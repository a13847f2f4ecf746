"""Which models get a second pool for their sliding layers: an allow-list, not a property.

Source: SGLang 0.5.23, srt/configs/model_config.py (`is_hybrid_swa_model`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvsize.model import Model

HYBRID_ARCHITECTURES = frozenset(
    {
        "BeamForCausalLM",
        "DiffusionGemmaForBlockDiffusion",
        "EmbeddingGemma2Model",
        "Gemma4ForCausalLM",
        "Gemma4ForConditionalGeneration",
        "Gemma4UnifiedForConditionalGeneration",
        "GptOssForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteSWAForCausalLM",
        "IQuestQ1ForCausalLM",
        "InklingForConditionalGeneration",
        "LagunaForCausalLM",
        "Llama4ForConditionalGeneration",
        "MellumForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiMoV2ForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "Step3p5ForCausalLM",
        "Step3p7ForConditionalGeneration",
        "UnlimitedOCRForCausalLM",
    }
)
# The same by model type, for configs that name no architecture.
HYBRID_MODEL_TYPES = frozenset(
    [
        "beam",
        "diffusion_gemma",
        "gemma4",
        "gemma4_text",
        "gemma4_unified",
        "gemma4_unified_text",
        "gpt_oss",
        "granite_swa",
        "granitemoe_swa",
        "inkling",
        "iquest_q1",
        "laguna",
        "llama4",
        "mellum",
        "mimo_v2",
        "mimo_v2_flash",
        "muse_glimmer",
        "step3p5",
        "step3p7",
        "unlimited_ocr",
    ]
)


def is_hybrid(model: Model) -> bool:
    """Whether SGLang gives the model's sliding layers a pool of their own."""
    named = model.root.value("architectures")
    architectures = {str(name) for name in named} if isinstance(named, list) else set()
    types = {model.model_type, model.config.model_type}
    listed = architectures & HYBRID_ARCHITECTURES or types & HYBRID_MODEL_TYPES
    return bool(listed) or model.config.flag("is_hybrid_swa")
