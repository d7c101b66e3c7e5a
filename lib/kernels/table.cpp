#include "kernels/table.h"

#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "kernels/processor.h"

namespace argosy::kernels {

namespace portable {
extern const Table kTable;
}
#ifdef ARGOSY_KERNELS_X86
namespace avx2 {
extern const Table kTable;
}
namespace avx512 {
extern const Table kTable;
}
namespace avx512_bf16 {
extern const Table kTable;
}
namespace amx {
extern const Table kTable;
}
#endif

namespace {

std::vector<const Table*> find_available() {
    std::vector<const Table*> found = {&portable::kTable};
#ifdef ARGOSY_KERNELS_X86
    if (processor_has_avx2()) found.push_back(&avx2::kTable);
    if (processor_has_avx512()) found.push_back(&avx512::kTable);
    if (processor_has_avx512_bf16()) found.push_back(&avx512_bf16::kTable);
    if (processor_has_amx()) found.push_back(&amx::kTable);
#endif
    return found;
}

const Table& choose() {
    const std::string wanted = Environment::read().cpu_kernels;
    std::string names;
    for (const Table* one : available_tables()) {
        if (wanted == one->name) return *one;
        names += names.empty() ? one->name : std::string(", ") + one->name;
    }
    if (wanted.empty()) return *available_tables().back();
    throw UserError("ARGOSY_CPU_KERNELS is {}, which this processor does not support; it supports {}", wanted,
                    names);
}

}  // namespace

std::span<const Table* const> available_tables() {
    static const std::vector<const Table*> available = find_available();
    return available;
}

const Table& table() {
    static const Table& chosen = choose();
    return chosen;
}

}  // namespace argosy::kernels
