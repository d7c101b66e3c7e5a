"""The name of the GPU on which programs under test compute."""
import ctypes


def gpu_name():
    """The name of the first GPU that CUDA_VISIBLE_DEVICES leaves visible, or None."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0) or \
        driver.cuDeviceGetName(name, len(name), device)
    return None if failed else name.value.decode()
