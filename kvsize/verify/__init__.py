"""`kvsize verify`: the figure held against tensors that really exist.

Everything here may import torch and transformers, so the package is imported only when the
command is used; `needs.require()` tells first what is missing.
"""
