#include "train/slow_settings.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "base/slow_settings.h"
#include "mpi/roll.h"
#include "mpi/tell_all.h"

namespace argosy::train {
namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// Whether some adapter is there, active or not.
bool has_fabric() {
    std::error_code ignored;
    return std::filesystem::directory_iterator("/sys/class/infiniband", ignored) !=
           std::filesystem::directory_iterator();
}

bool matters(SlowSetting::Where where, int ranks_on_node, int num_ranks) {
    switch (where) {
        case SlowSetting::Where::SeveralRanksANode:
            return ranks_on_node > 1;
        case SlowSetting::Where::FabricBetweenNodes:
            return ranks_on_node < num_ranks && has_fabric();
        case SlowSetting::Where::Everywhere:
            break;
    }
    return true;
}

const std::string* value_of(const char* name, const Variables& variables) {
    const auto found = std::ranges::find(variables, name, &Variables::value_type::first);
    return found == variables.end() ? nullptr : &found->second;
}

/// For each setting whether it does harm on this rank.
std::vector<uint8_t> found_here(const Variables& variables, int ranks_on_node, int num_ranks) {
    std::vector<uint8_t> found;
    for (const SlowSetting& setting : slow_settings()) {
        const std::string* value = value_of(setting.variable, variables);
        found.push_back(value && setting.holds(*value) && matters(setting.where, ranks_on_node, num_ranks));
    }
    return found;
}

/// "all ranks", or "rank 1, 3, ...".
std::string describe(const std::vector<int>& ranks, int num_ranks) {
    constexpr size_t kMostShown = 8;
    if (static_cast<int>(ranks.size()) == num_ranks) return num_ranks == 1 ? "this rank" : "all ranks";
    return "rank " + mpi::listed(ranks, kMostShown);
}

}  // namespace

void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node) {
    const Variables variables = communication_variables();
    const std::vector<uint8_t> own = found_here(variables, ranks_on_node, world.size());
    const std::vector<uint8_t> all = mpi::tell_all(world, std::span(own), "which variables make them slow");
    if (world.rank() != 0) return;
    for (size_t i = 0; i < own.size(); ++i) {
        const SlowSetting& setting = slow_settings()[i];
        std::vector<int> ranks;
        for (int rank = 0; rank < world.size(); ++rank) {
            if (all[rank * own.size() + i]) ranks.push_back(rank);
        }
        if (ranks.empty()) continue;
        const std::string value = own[i] ? "=" + *value_of(setting.variable, variables) : std::string();
        spdlog::warn("{}{} on {}: {}; {}", setting.variable, value, describe(ranks, world.size()),
                     setting.why, setting.remedy);
    }
}

}  // namespace argosy::train
