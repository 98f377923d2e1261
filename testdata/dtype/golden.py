#!/usr/bin/env python3
"""Writes scalars.txt: what ml_dtypes and NumPy make of every bit pattern.

    pip install ml_dtypes==0.6.0 numpy==2.4.6
    python3 golden.py > scalars.txt        (takes about a quarter of an hour)

One line for each type:

    name  widen: the float32 of every code in hex, or for 16 bits the CRC-32 of
          them, little-endian, NaNs left out
    name  narrow: CRC-32 of the codes (one byte, or two little-endian) of 2^27
          float32 patterns, NaNs left out: thirty-two in a row, all 2^32 of them
    name  sample: CRC-32 of the codes of every float32 pattern whose low half is
          0000, 0001, 7fff, 8000, 8001 or ffff, NaNs left out

The names are those of fuel's DTypes.

For f8e8m0fnu the patterns 00400001 to 005fffff are left out as well: numbers
between 2^-127 and 1.5 * 2^-127, which are nearest to 2^-127 and which ml_dtypes
0.6.0 rounds to 2^-126.
"""
import sys
import zlib

import ml_dtypes
import numpy as np

TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "f6e2m3": ml_dtypes.float6_e2m3fn,
    "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
}
BITS = {"f16": 16, "bf16": 16, "f6e2m3": 6, "f6e3m2": 6, "f4e2m1": 4}
LOW = np.array([0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)

np.seterr(all="ignore")


def codes(patterns, dtype, crc=0):
    if dtype is ml_dtypes.float8_e8m0fnu:
        patterns = patterns[(patterns <= 0x400000) | (patterns > 0x5FFFFF)]
    x = patterns.view(np.float32)
    x = x[~np.isnan(x)]
    return zlib.crc32(x.astype(dtype).tobytes(), crc)


print("# ml_dtypes", ml_dtypes.__version__, "numpy", np.__version__, "little-endian" if sys.byteorder == "little" else "BIG")
for name, dtype in TYPES.items():
    bits = BITS.get(name, 8)
    raw = np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8).view(dtype).astype(np.float32)
    if bits == 16:
        print(name, "widen", "%08x" % zlib.crc32(raw[~np.isnan(raw)].tobytes()))
    else:
        raw[np.isnan(raw)] = np.nan
        print(name, "widen", *("%08x" % v for v in raw.view(np.uint32)))
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    print(name, "sample", "%08x" % codes((high[:, None] | LOW).ravel(), dtype))
    row = []
    for chunk in range(32):
        crc = 0
        for part in range(32):
            start = (chunk << 27) + (part << 22)
            crc = codes(np.arange(start, start + (1 << 22), dtype=np.uint64).astype(np.uint32), dtype, crc)
        row.append("%08x" % crc)
    print(name, "narrow", *row, flush=True)
