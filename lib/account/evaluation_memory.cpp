#include "account/evaluation_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "account/shortage.h"
#include "base/error.h"

namespace argosy::account {
namespace {

std::string breakdown(const Shortage& found) {
    if (found.where == Shortage::Where::Host) return host_memory(found);
    if (!found.gpu) return ", on the GPU";
    std::vector<std::string> parts = {"tensors " + gibibytes_text(*found.tensors)};
    std::ranges::move(parts_beside_tensors(found), std::back_inserter(parts));
    return fmt::format("; {}: {}", which_memory(found), fmt::join(parts, ", "));
}

/// Options that would reduce memory and are not yet in use. For a GPU run, only a unit's weights are on the
/// host.
std::vector<std::string> remedies(const MemoryNeeds& needs, Shortage::Where where) {
    const bool of_gpu = where == Shortage::Where::Gpu;
    std::vector<std::string> found;
    if (of_gpu == needs.on_gpu && needs.batch_tokens > needs.longest_window) {
        found.push_back(fmt::format("--batch-tokens below {}", needs.batch_tokens));
    }
    if (of_gpu == needs.on_gpu && needs.longest_window > 1) {
        found.push_back(fmt::format("--max-length below {}", needs.longest_window));
    }
    if (needs.dtype == "fp32") found.push_back("--dtype bf16 (it is fp32)");
    found.push_back(of_gpu ? "--device cpu" : "a machine with more memory");
    return found;
}

}  // namespace

void explain_shortage(const MemoryNeeds& needs) {
    const auto found = find_shortage();
    if (!found) throw;
    throw RunError("out of memory{}{}. What would need less: {}", asked_for(*found), breakdown(*found),
                   fmt::join(remedies(needs, found->where), "; "));
}

}  // namespace argosy::account
