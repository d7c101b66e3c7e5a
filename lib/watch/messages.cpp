#include "watch/messages.h"

#include <fmt/format.h>

#include <map>

namespace argosy::watch {
namespace {

constexpr size_t kMaxPlaces = 4;

std::string waits_of_others(const std::map<std::string, std::vector<int>>& ranks_by_place) {
    std::string text;
    size_t num_left = kMaxPlaces;
    for (const auto& [place, ranks] : ranks_by_place) {
        text += text.empty() ? ". The others wait for " : "; ";
        if (num_left-- == 0) return text + "...";
        text += fmt::format("{}: rank {}", place, mpi::listed(ranks));
    }
    return text;
}

}  // namespace

std::string operation_name(const std::string& kind, const std::string& group, int64_t number, int64_t graph) {
    const std::string of_graph = graph == 0 ? "" : fmt::format(" of graph {}", graph);
    return fmt::format("{} over {} (operation {}{})", kind, group, number, of_graph);
}

std::string timeout_text(const WaitInVain& wait, const mpi::Attendance& found) {
    const std::string why =
        found.missing.empty()
            ? "all ranks wait by now: one came too late, or they wait for different things, or what lies "
              "between them does not work"
            : mpi::named_missing(found.missing) +
                  ". Who is missing is dead, stuck or much slower; its own message, if any, says why";
    return fmt::format("{} of ranks {}: no answer in {} s; {}{} (comm.train_timeout_seconds sets the limit)",
                       wait.operation, mpi::listed(wait.members), wait.seconds, why,
                       waits_of_others(found.ranks_by_place));
}

}  // namespace argosy::watch
