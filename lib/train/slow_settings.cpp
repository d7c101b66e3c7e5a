#include "train/slow_settings.h"

#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/log.h"
#include "base/slow_settings.h"
#include "mpi/blocking_call.h"

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

/// "all ranks", or "ranks 1, 3 and 2 more".
std::string describe(const std::vector<int>& ranks, int num_ranks) {
    constexpr size_t kMostShown = 8;
    if (static_cast<int>(ranks.size()) == num_ranks) return num_ranks == 1 ? "this rank" : "all ranks";
    const size_t shown = std::min(ranks.size(), kMostShown);
    const std::string more =
        shown < ranks.size() ? fmt::format(" and {} more", ranks.size() - shown) : std::string();
    return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks",
                       fmt::join(ranks.begin(), ranks.begin() + static_cast<int64_t>(shown), ", "), more);
}

}  // namespace

void warn_of_slow_settings(const mpi::Comm& world, int ranks_on_node) {
    const Variables variables = communication_variables();
    const std::vector<uint8_t> own = found_here(variables, ranks_on_node, world.size());
    const mpi::BlockingCall call("telling each other which variables make them slow");
    std::vector<uint8_t> all(own.size() * world.size());
    mpi::Request request = world.all_gather(all.data(), own.data(), own.size(), ElementType::UInt8);
    while (!mpi::test_all({&request, 1})) sched_yield();
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
