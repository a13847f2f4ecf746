"""GGUF files as llama.cpp reads them: the header's layout, and what its keys mean for memory."""
