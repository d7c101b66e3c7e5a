"""The GPUs on which programs under test compute: their name and number, and how ranks that share one are started."""
import ctypes


def driver():
    """The driver's library, ready for calls, or None without a driver."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if library.cuInit(0) else library


def gpu_name():
    """The name of the first GPU that CUDA_VISIBLE_DEVICES leaves visible, or None."""
    cuda = driver()
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    failed = cuda is None or cuda.cuDeviceGet(ctypes.byref(device), 0) or cuda.cuDeviceGetName(name, len(name), device)
    return None if failed else name.value.decode()


def num_gpus():
    """The number of GPUs that CUDA_VISIBLE_DEVICES leaves visible."""
    cuda, number = driver(), ctypes.c_int()
    failed = cuda is None or cuda.cuDeviceGetCount(ctypes.byref(number))
    return 0 if failed else number.value


def nccl_rank(gpus):
    """The words before a program that mpirun starts on a node with so many GPUs. Rank r computes on GPU r modulo `gpus`. NCCL
    refuses two ranks of one node on one GPU, so a rank whose GPU an earlier rank has appears to be on another node. With
    a GPU for each rank no rank does, because NCCL uses no NVLink and no shared memory between nodes."""
    return ("sh", "-c", f'[ "$OMPI_COMM_WORLD_RANK" -lt {max(gpus, 1)} ] || '
            f'export NCCL_HOSTID=$((OMPI_COMM_WORLD_RANK / {max(gpus, 1)})); exec "$0" "$@"')
