"""Prints the PTX of CUDA C++ files, one text together, for Hopper: `python ptx.py FILE...`.

It needs `pip install cuda-bindings nvidia-cuda-nvrtc` and no GPU.
"""

import sys

from cuda.bindings import nvrtc

text = b"".join(open(name, "rb").read() for name in sys.argv[1:])
_, program = nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, [], [])
(status,) = nvrtc.nvrtcCompileProgram(program, 2, [b"--gpu-architecture=sm_90a", b"--std=c++17"])
if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
    sys.exit(f"NVRTC does not compile this: {status.name}")
_, size = nvrtc.nvrtcGetPTXSize(program)
ptx = bytes(size)
nvrtc.nvrtcGetPTX(program, ptx)
print(ptx.rstrip(b"\0").decode())
