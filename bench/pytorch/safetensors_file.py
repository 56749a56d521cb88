"""Safetensors files without the package: what Aeshna writes for PyTorch to read, and the other way round."""
import ctypes
import hashlib
import json
import math
import mmap
import os
import struct

import torch

DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32}


def read(path):
    """({name: tensor}, metadata). The tensors are views of the mapped file; writing to one changes no file."""
    with open(path, "rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    length, = struct.unpack_from("<Q", memory)
    if length > len(memory) - 8:
        raise ValueError(f"{path}: a header of {length} bytes in a file of {len(memory)}")
    header, data, tensors = json.loads(memory[8:8 + length]), 8 + length, {}
    metadata = header.pop("__metadata__", {})
    for name, entry in header.items():
        dtype, shape, (begin, end) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        elements = math.prod(shape)
        if not 0 <= begin <= end <= len(memory) - data or end - begin != elements * dtype.itemsize:
            raise ValueError(f"{path}: {name} {shape} has the bytes {begin} to {end} of {len(memory) - data}")
        flat = torch.frombuffer(memory, dtype=dtype, count=elements, offset=data + begin) if elements else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(shape)
    return tensors, metadata


def write(path, tensors, metadata):
    """Writes beside `path` first, so that a file of that name is complete."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}
    header, offset = {"__metadata__": {key: str(value) for key, value in metadata.items()}}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{path}.part", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            if tensor.numel():
                file.write((ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr()))
    os.replace(f"{path}.part", path)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
