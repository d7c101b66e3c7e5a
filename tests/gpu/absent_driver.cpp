// libcuda.so.1 for a machine without a GPU: as much of CUDA's driver as cuDNN needs to compile kernels for a
// GPU that is described to it. A compiled kernel is taken and forgotten; everything else fails.
extern "C" {

int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
    *version = 13000;
    return 0;
}
int cuLibraryLoadData(void** library) {
    *library = library;
    return 0;
}
int cuLibraryUnload(void*) { return 0; }
int cuLibraryGetKernel(void** kernel) {
    *kernel = kernel;
    return 0;
}
int cuKernelSetAttribute() { return 0; }

#define FAILS(function) \
    int function() { return 34; /* CUDA_ERROR_STUB_LIBRARY */ }
FAILS(cuCtxGetCurrent)
FAILS(cuCtxGetLimit)
FAILS(cuCtxPopCurrent)
FAILS(cuCtxPushCurrent)
FAILS(cuDeviceGet)
FAILS(cuDeviceGetCount)
FAILS(cuGetErrorName)
FAILS(cuGetErrorString)
FAILS(cuGetExportTable)
FAILS(cuKernelGetAttribute)
FAILS(cuLaunchCooperativeKernel)
FAILS(cuLaunchKernel)
FAILS(cuLaunchKernelEx)
FAILS(cuLibraryLoadFromFile)
FAILS(cuLinkAddData)
FAILS(cuLinkComplete)
FAILS(cuLinkCreate)
FAILS(cuLinkDestroy)
FAILS(cuOccupancyMaxPotentialClusterSize)
FAILS(cuStreamGetCtx)
}
