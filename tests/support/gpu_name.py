"""Of which GPU tests say that a program computes on it."""
import ctypes


def gpu_name():
    """Of CUDA's first GPU, which CUDA_VISIBLE_DEVICES has a say in, or None."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0) or \
        driver.cuDeviceGetName(name, len(name), device)
    return None if failed else name.value.decode()
