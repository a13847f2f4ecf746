"""What people's llama.cpp logs say, from the presets: config.json, conversion and caches at once.

Each row names where its log is public. Figures are MiB as printed, two decimals at most.
"""

import pytest

import kvsize
from kvsize.units import MIB

Q8_0 = {"type_k": "q8_0", "type_v": "q8_0"}
SERVER = {"n_seq_max": 4, "kv_unified": True}
COMMAND_R = "huggingface.co/dranger003/c4ai-command-r-v01-iMat.GGUF discussion 6"
ROWS = [
    ("mixtral-8x7b", 2048, {}, [256], COMMAND_R),
    ("llama-3-8b", 2048, {}, [256], COMMAND_R),
    ("llama-3-70b", 2048, {}, [640], COMMAND_R),
    ("qwen1.5-32b", 2048, {}, [512], COMMAND_R),
    ("yi-1.5-34b", 2048, {}, [480], COMMAND_R),
    ("command-r", 2048, {}, [2560], COMMAND_R),
    ("gemma-4-e4b", 4096, {"n_ubatch": 1024}, [64, 60], "qualcomm/GenieX#1346"),
    ("gemma-4-e4b", 4096, {"swa_full": True}, [64, 160], "qualcomm/GenieX#1346"),
    ("qwen3-vl-8b", 8192, {}, [1152], "Swift KV sizing tests"),
    ("qwen3-vl-8b", 8192, Q8_0, [612], "Swift KV sizing tests"),
    ("llama-3.1-405b", 4096, {}, [2016], "llama.cpp RPC log"),
    ("gpt-oss-120b", 262144, {}, [9216, None], "UVM investigation"),
    ("muse-glimmer-30b", 32768, {}, [416, 97.5], "Muse Glimmer notes"),
    ("qwen3.6-27b", 131072, Q8_0 | SERVER, [4352, 598.5], "llama.cpp docker log 2026-05"),
    ("qwen3.5-9b", 8192, SERVER, [256, 201], "Vulkan split log; Qwen3.5-9B notes"),
    ("gemma-4-12b", 8192, Q8_0 | SERVER, [68, 765], "friday-llm notes"),
    ("gemma-4-12b", 4096, {}, [64, 480], "startup keys note"),
    ("gemma-4-12b", 32768, {"swa_full": True}, [512, 10240], "full-size SWA log"),
    ("gemma-2-2b", 8192, SERVER, [416, 416], "gemma-2 CPU log"),
    ("gemma-4-e2b", 8192, SERVER | {"n_ubatch": 2048}, [48, 48], "Vulkan E2B log"),
    ("gpt-oss-20b", 16384, {"n_seq_max": 8}, [384, None], "vramfit gpt-oss test"),
    ("qwen3.5-35b-a3b", 32768, {}, [640, 62.81], "Mac MoE vs dense blog"),
    ("qwen3.5-35b-a3b", 54784, {}, [1070, 62.81], "daemon KV accounting audit"),
    ("qwen3.5-35b-a3b", 262144, Q8_0, [2720, 62.81], "ollama log parser anchor"),
    ("devstral-small-2", 256, {}, [40], "Devstral small 2 log"),
    ("glm-4.5-air", 131072, {}, [23552], "GLM-4.5-Air log"),
    ("qwen3-30b-a3b", 32768, SERVER, [3072], "KV allocation note"),
    ("qwen3-30b-a3b-2507", 65536, {"n_seq_max": 4}, [6144], "Qwen3-30B 2507 log"),
    ("deepseek-v3", 32768, Q8_0, [1166.62], "ikawrakow/ik_llama.cpp#259"),
]


@pytest.mark.parametrize(
    ("preset", "context", "options", "printed", "source"),
    ROWS,
    ids=[f"{row[0]} {row[4]}" for row in ROWS],
)
def test_logs(preset, context, options, printed, source):
    found = kvsize.size(kvsize.load(preset), context=context, engine="llama.cpp", options=options)
    sizes = [round(group.total_bytes / MIB, 2) for group in found.groups]
    assert len(sizes) == len(printed)
    assert [size for size, said in zip(sizes, printed, strict=True) if said] == [
        said for said in printed if said
    ]
