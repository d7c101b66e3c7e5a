// A profiler's library, which NVTX loads if NVTX_INJECTION64_PATH names it. It appends each range to the file
// ARGOSY_RANGE_LOG: "begin NAME", and "end" for the innermost open range.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>

namespace {

int depth = 0;

void write(const char* kind, const char* name) {
    static std::FILE* const file = std::fopen(std::getenv("ARGOSY_RANGE_LOG"), "a");
    std::fprintf(file, "%s%s\n", kind, name);
    std::fflush(file);
}

int NVTX_API push(const char* name) {
    write("begin ", name);
    return depth++;
}

int NVTX_API pop() {
    write("end", "");
    return --depth;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
    const auto* const callbacks =
        static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
    NvtxFunctionTable table = nullptr;
    unsigned int size = 0;
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
    *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
    *table[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
    return 1;
}
