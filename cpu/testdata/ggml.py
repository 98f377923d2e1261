#!/usr/bin/env python3
"""Writes q8_0.bin, q4_0.bin, q4_k.bin and q6_k.bin: what gguf makes of blocks.

    pip install gguf==0.19.0 numpy==2.4.6
    python3 ggml.py        (in the folder of the files)

A line with the versions and the number of blocks, then the blocks, then the
float32 of all of them, little-endian. First come random blocks, then some with
edge values: all bits set or clear, and float16 scales that are zero, subnormal,
the largest, infinite or NaN, of either sign.
"""
import importlib.metadata

import gguf
import numpy as np

# Where the float16 of a block are, and the number of random blocks.
TYPES = {"Q8_0": ([0], 8), "Q4_0": ([0], 8), "Q4_K": ([0, 2], 3), "Q6_K": ([208], 3)}
EDGES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFD01]

random = np.random.default_rng(1)
np.seterr(all="ignore")


def block(size, scales, edge=None):
    b = random.integers(0, 256, size, dtype=np.uint8)
    for i, at in enumerate(scales):
        # Of two scales one is an edge value, or both where that is infinite.
        number = np.float16(random.normal()).view(np.uint16)
        if edge is not None and (i == edge % 2 or len(scales) == 1 or EDGES[edge] == 0x7C00):
            number = np.uint16(EDGES[edge])
        b[at : at + 2] = np.array([number], "<u2").view(np.uint8)
    return b


for name, (scales, count) in TYPES.items():
    qtype = gguf.GGMLQuantizationType[name]
    _, size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = [block(size, scales) for _ in range(count)]
    blocks += [block(size, scales, edge) for edge in range(len(EDGES))]
    blocks += [np.full(size, 0xFF, np.uint8), np.zeros(size, np.uint8)]
    # All bits but those of the scales, which are the largest.
    full = np.full(size, 0xFF, np.uint8)
    for at in scales:
        full[at : at + 2] = [0xFF, 0x7B]
    blocks = np.concatenate(blocks + [full])
    values = gguf.dequantize(blocks, qtype).astype("<f4")
    versions = f"gguf {importlib.metadata.version('gguf')} numpy {np.__version__}"
    with open(name.lower() + ".bin", "wb") as f:
        f.write(f"{versions} {name} {len(blocks) // size}\n".encode() + blocks.tobytes() + values.tobytes())
