#!/usr/bin/env python3
"""Writes abi.txt: what NVIDIA's own bindings know of the driver API.

    pip install cuda-bindings==13.5.0
    python3 abi.py > abi.txt

One line for each function that the plugin uses, with the class of each
parameter; for each CUresult; for each constant that the plugin uses. Functions
come from cuda/bindings/_internal/driver.pxd, which has the names that the
library exports; numbers from the enumerations of cuda.bindings.driver.
"""
import importlib.metadata
import pathlib
import re

import cuda.bindings
from cuda.bindings import driver

FUNCTIONS = """
cuInit cuDriverGetVersion cuGetErrorName
cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetUuid_v2 cuDeviceTotalMem_v2 cuDeviceGetAttribute
cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuCtxGetCurrent cuCtxSetCurrent
cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamWaitEvent
cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery cuEventSynchronize
cuMemAlloc_v2 cuMemAllocManaged cuMemFree_v2 cuMemGetInfo_v2 cuMemHostAlloc cuMemFreeHost
cuMemHostRegister_v2 cuMemHostUnregister cuMemHostGetDevicePointer_v2
cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemsetD32Async
cuDeviceCanAccessPeer cuCtxEnablePeerAccess cuMemcpyPeerAsync
""".split()

CONSTANTS = {
    "CUdevice_attribute": "INTEGRATED MANAGED_MEMORY CONCURRENT_MANAGED_ACCESS HOST_REGISTER_SUPPORTED READ_ONLY_HOST_REGISTER_SUPPORTED".split(),
    "CUstream_flags": ["CU_STREAM_NON_BLOCKING"],
    "CUevent_flags": ["CU_EVENT_BLOCKING_SYNC", "CU_EVENT_DISABLE_TIMING"],
    "CUmemAttach_flags": ["CU_MEM_ATTACH_GLOBAL"],
    "": "CU_MEMHOSTREGISTER_PORTABLE CU_MEMHOSTREGISTER_DEVICEMAP CU_MEMHOSTREGISTER_READ_ONLY".split(),  # in no enumeration
}

# What a parameter is to the calling convention. Handles are pointers to structs
# that nobody sees; a CUdeviceptr has 64 bits everywhere.
CLASSES = {
    "int": "32", "unsigned int": "32", "CUdevice": "32", "CUresult": "32", "CUdevice_attribute": "32",
    "size_t": "size", "CUdeviceptr": "64", "CUcontext": "ptr", "CUstream": "ptr", "CUevent": "ptr",
}


def parameter(text):
    if "*" in text:
        return "ptr"
    return CLASSES[text.rsplit(" ", 1)[0]]


version = importlib.metadata.version("cuda-bindings")
print(f"# cuda-bindings {version}, written by abi.py")
pxd = (pathlib.Path(list(cuda.bindings.__path__)[0]) / "_internal" / "driver.pxd").read_text()
declared = dict(re.findall(r"^cdef CUresult _(\w+)\((.*?)\) except", pxd, re.M))
for name in FUNCTIONS:
    print(" ".join(["function", name] + [parameter(p) for p in declared[name].split(", ")]))
for r in driver.CUresult:
    print("result", r.name, int(r))
for enum, names in CONSTANTS.items():
    for n in names:
        n = "CU_DEVICE_ATTRIBUTE_" + n if enum == "CUdevice_attribute" else n
        print("constant", n, int(getattr(getattr(driver, enum) if enum else driver, n)))
