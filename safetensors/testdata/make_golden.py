"""Writes golden/python-*.safetensors with the Python package safetensors.

The files that are committed come from Python 3.11, safetensors 0.8.0,
numpy 2.4.6 and ml_dtypes 0.6.0:

    python -m venv venv; venv/bin/pip install safetensors numpy ml_dtypes
    venv/bin/python make_golden.py

golden_test.go has the bits that the values below must turn into, written by
hand. F6_E2M3 and F6_E3M2 are missing: the Python package cannot write them.
make_golden.rs does.
"""

import pathlib

import ml_dtypes
import numpy as np
from safetensors import TensorSpec, serialize_file

golden = pathlib.Path(__file__).parent / "golden"

floats = [0, 1, -2, 0.5, 1.5, -0.25]
signed = [0, 1, -2, 3, 127, -128]
unsigned = [0, 1, 2, 3, 127, 255]

arrays = {
    "bool": np.array([1, 0, 1, 1, 0, 0], dtype=bool),
    "int8": np.array(signed, dtype=np.int8),
    "uint8": np.array(unsigned, dtype=np.uint8),
    "int16": np.array(signed, dtype=np.int16),
    "uint16": np.array(unsigned, dtype=np.uint16),
    "int32": np.array(signed, dtype=np.int32),
    "uint32": np.array(unsigned, dtype=np.uint32),
    "int64": np.array(signed, dtype=np.int64),
    "uint64": np.array(unsigned, dtype=np.uint64),
    "float16": np.array(floats, dtype=np.float16),
    "bfloat16": np.array(floats, dtype=ml_dtypes.bfloat16),
    "float32": np.array(floats, dtype=np.float32),
    "float64": np.array(floats, dtype=np.float64),
    "complex64": np.array([0, 1, -2j, 0.5 + 1j, 1.5, -0.25], dtype=np.complex64),
    "float8_e4m3fn": np.array(floats, dtype=ml_dtypes.float8_e4m3fn),
    "float8_e4m3fnuz": np.array(floats, dtype=ml_dtypes.float8_e4m3fnuz),
    "float8_e5m2": np.array(floats, dtype=ml_dtypes.float8_e5m2),
    "float8_e5m2fnuz": np.array(floats, dtype=ml_dtypes.float8_e5m2fnuz),
    "float8_e8m0fnu": np.array([1, 2, 0.5, 4, 0.25, 8], dtype=ml_dtypes.float8_e8m0fnu),
}


def spec(dtype, array, shape):
    return TensorSpec(dtype=dtype, shape=shape, data_ptr=array.ctypes.data, data_len=array.nbytes)


specs = {name: spec(name, array, [2, 3]) for name, array in arrays.items()}

# Two elements in a byte, the first in the low half: 0 0.5 1 1.5, -0 -6 6 4.
four = np.array([0x10, 0x32, 0xF8, 0x67], dtype=np.uint8)
specs["float4_e2m1fn_x2"] = spec("float4_e2m1fn_x2", four, [2, 2])  # becomes [2, 4]

scalar = np.array(42, dtype=np.int32)
specs["scalar"] = spec("int32", scalar, [])
empty = np.zeros((3, 0), dtype=np.float32)
specs["empty"] = spec("float32", empty, [3, 0])
odd = np.arange(5, dtype=np.uint8)
specs['ünïcode "quoted"\n/\\'] = spec("uint8", odd, [5])

serialize_file(specs, golden / "python-all.safetensors", {"format": "np"})
serialize_file({}, golden / "python-none.safetensors", None)
serialize_file({}, golden / "python-metadata.safetensors", {"key \"1\"": "välue\n\t\x01\U0001F600"})
