// The links of a machine as nccl-bench measured them: reads its JSON files (bench/FORMAT.md).
//
// A file has the times of one collective by size, in groups of ranks of one node, of one rank of each node,
// or of several ranks of each node. A group of the first kind gives the links in a node, the others those
// between nodes. Within a node the largest group counts. Between nodes the group with one rank of each node
// counts, because it uses all adapters. The links between nodes are taken to be the slowest part of a ring
// through several ranks of each node. An operation is taken to need (Machine)
//   hops * latency + bytes over the slowest link / bandwidth.
// The latency is the median over the three smallest sizes and the bandwidth the median over the three
// largest; for each, the time of the other part is subtracted first. Neither a change of the library's
// protocol at a size between them nor one slow row changes them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <ranges>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/median.h"
#include "base/raw_file.h"
#include "base/strict_json.h"
#include "plan/machine.h"

namespace argosy::plan {
namespace {

using comm::OpKind;
using nlohmann::ordered_json;

constexpr const char* kMeasure = "nccl-bench all_gather -b 1K -e 256M -f 2 --json F.json";

/// The operations of a step by nccl-bench's names.
const std::map<std::string, std::vector<OpKind>> kCollectives = {
    {"all_gather", {OpKind::AllGather}}, {"reduce_scatter", {OpKind::ReduceScatter}},
    {"all_reduce", {OpKind::AllReduce}}, {"broadcast", {OpKind::Broadcast}},
    {"alltoall", {OpKind::AllToAll}},    {"sendrecv", {OpKind::Send, OpKind::Receive}}};

struct Sample {
    double bytes = 0;  // over the link
    double seconds = 0;
};

/// A report and what follows from it.
class BenchFile {
  public:
    explicit BenchFile(const std::string& path) : path_(path) {
        constexpr int64_t kMaxBytes = 256 << 20;
        const ordered_json json = parse_json(read_text(path, kMaxBytes), "--links " + path);
        if (!json.is_object() || json.value("format", ordered_json()) != "argosy nccl-bench")
            refuse("is no report of nccl-bench; measure with: {}", kMeasure);
        if (const ordered_json version = json.value("version", ordered_json()); version != 3)
            refuse("is a report of version {}, and this program reads version 3", version.dump());
        try {
            read(json);
        } catch (const nlohmann::json::exception& error) {
            refuse("is not as nccl-bench writes it: {}", error.what());
        }
    }

    bool in_host_memory() const { return !device_; }
    const std::vector<OpKind>& kinds() const { return kCollectives.at(collective_); }

    /// Refuses a report of GPUs for a processor, or of another number of ranks on a node. One in host memory
    /// has the links between nodes for GPUs too.
    void check_fits(const Machine& machine, int num_ranks) const {
        if (!machine.is_gpu && device_)
            refuse("was measured between {}, but the plan is for {}; measure with --backend mpi", *device_,
                   machine.name);
        if (machine.is_gpu && in_host_memory() && !best_group(/*between=*/true)) {
            refuse(
                "was measured in the host memory of one node, which says nothing of {}; measure with "
                "--backend nccl, or "
                "over several nodes",
                machine.name);
        }
        const int planned = std::min(machine.ranks_per_node, num_ranks);
        if (ranks_per_node_ == planned || ranks_per_node_ == machine.ranks_per_node) return;
        refuse("was measured with another number of ranks: {} on a node, and the plan has {}{}",
               ranks_per_node_, planned,
               machine.is_gpu ? fmt::format("; measure with {}, or plan with --gpus-per-node {}", planned,
                                            ranks_per_node_)
                              : "");
    }

    /// The link in a node, or the one between nodes. None if no group of the report crosses it. `in_node`:
    /// the links in a node.
    std::optional<Link> link(bool between, const Links& in_node) const {
        const Group* const group = best_group(between);
        if (!group) return std::nullopt;
        const auto [start, seconds_per_byte] = fit(samples(*group, between));
        const Route route = route_of_size(*group, 0);
        const double latency_in_node = route.in_node.hops * in_node.of(kinds().front()).latency_seconds;
        const double seconds = between ? std::max(0.0, start - latency_in_node) : start;
        return Link{
            .bytes_per_second = 1 / seconds_per_byte,
            .latency_seconds = seconds / (between ? route.between_nodes : route.in_node).hops,
            .source = fmt::format("{} over {} ranks{}, {}", collective_, group->num_ranks,
                                  between ? fmt::format(" of {} nodes", group->num_nodes) : "", path_)};
    }

  private:
    struct Group {
        std::string axis;
        int num_ranks, num_nodes;
    };
    struct Row {
        std::string axis;
        int64_t bytes;
        double seconds;
    };
    struct Line {
        double start_seconds = 0, seconds_per_byte = 0;
    };

    template <class... Args>
    [[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) const {
        throw UserError("--links {} {}", path_, fmt::format(text, std::forward<Args>(args)...));
    }

    void read(const ordered_json& json) {
        collective_ = json.at("collective").get<std::string>();
        if (!kCollectives.contains(collective_)) {
            refuse("measures {}, which a step does not use; it uses {}", collective_,
                   fmt::join(std::views::keys(kCollectives), ", "));
        }
        for (const ordered_json& rank : json.at("config").at("devices")) {
            hosts_.push_back(rank.at("host").get<std::string>());
            const ordered_json& device = rank.at("device");
            if (!device.is_null()) device_ = device.at("name").get<std::string>();
        }
        count_ranks();
        for (const ordered_json& axis : json.at("axes")) {
            if (axis.at("out_of_bounds").at("okay") == false)
                refuse("has wrong results; find out why before planning with it");
            groups_.push_back(
                first_group(axis.at("axis").get<std::string>(), axis.at("group_size").get<int>()));
        }
        for (const ordered_json& row : json.at("results")) {
            rows_.push_back({row.at("axis").get<std::string>(), row.at("size").get<int64_t>(),
                             row.at("out_of_place").at("time_us").get<double>() * 1e-6});
        }
    }

    void count_ranks() {
        if (hosts_.size() < 2) refuse("was measured with one rank; links need two");
        std::map<std::string, int> ranks_of;
        for (const std::string& host : hosts_) ++ranks_of[host];
        ranks_per_node_ = ranks_of.begin()->second;
        for (const auto& [host, count] : ranks_of) {
            if (count != ranks_per_node_)
                refuse("has {} ranks on one node and {} on another", ranks_per_node_, count);
        }
    }

    /// Rank 0 and the others of its group: neighbours, or on the axis "across" one rank of each row.
    Group first_group(const std::string& axis, int size) const {
        if (size < 1 || size > std::ssize(hosts_))
            refuse("has groups of {} of its {} ranks", size, hosts_.size());
        const size_t step = axis == "across" ? hosts_.size() / size : 1;
        std::set<std::string> nodes;
        for (int i = 0; i < size; ++i) nodes.insert(hosts_.at(i * step));
        return {axis, size, static_cast<int>(nodes.size())};
    }

    /// The group with the links, chosen as described above.
    const Group* best_group(bool between) const {
        const Group* best = nullptr;
        const auto worth = [](const Group& group) {
            return std::pair(group.num_nodes == group.num_ranks, group.num_ranks);
        };
        for (const Group& group : groups_) {
            if (group.num_ranks < 2 || (group.num_nodes > 1) != between) continue;
            if (!best || worth(group) > worth(*best)) best = &group;
        }
        return best;
    }

    Route route_of_size(const Group& group, int64_t bytes) const {
        const int64_t to_others = bytes - bytes / group.num_ranks;  // of an all-to-all, with equal parts
        const comm::RecordedOp op{.size = group.num_ranks,
                                  .kind = kinds().front(),
                                  .type = ElementType::UInt8,
                                  .num_elements = bytes,
                                  .peer = 0,
                                  .parts = {to_others, to_others}};
        return route_of(op, group.num_nodes);
    }

    std::vector<Sample> samples(const Group& group, bool between) const {
        std::vector<Sample> found;
        for (const Row& row : rows_) {
            if (row.axis != group.axis) continue;
            const Route route = route_of_size(group, row.bytes);
            found.push_back({(between ? route.between_nodes : route.in_node).bytes, row.seconds});
        }
        return found;
    }

    /// The line through the samples.
    Line fit(const std::vector<Sample>& samples) const {
        constexpr size_t kEnd = 3;
        std::set<double> sizes;
        for (const Sample& sample : samples) sizes.insert(sample.bytes);
        if (sizes.size() < 2 * kEnd || *sizes.rbegin() < 1024 * *sizes.begin())
            refuse("has too few sizes ({}) or too narrow a range; measure with: {}", sizes.size(), kMeasure);
        const double last_small = *std::next(sizes.begin(), kEnd - 1),
                     first_large = *std::next(sizes.rbegin(), kEnd - 1);
        Line line;
        constexpr int kRounds = 30;  // each lowers the error by the ratio of large to small sizes
        for (int i = 0; i < kRounds; ++i) {
            std::vector<double> starts, slopes;
            for (const auto& [bytes, seconds] : samples) {
                if (bytes <= last_small) starts.push_back(seconds - bytes * line.seconds_per_byte);
            }
            line.start_seconds = std::max(0.0, upper_median(starts));
            for (const auto& [bytes, seconds] : samples) {
                if (bytes >= first_large) slopes.push_back((seconds - line.start_seconds) / bytes);
            }
            line.seconds_per_byte = upper_median(slopes);
        }
        if (!(line.seconds_per_byte > 0)) refuse("has times that do not grow with the size");
        return line;
    }

    std::string path_, collective_;
    std::vector<std::string> hosts_;  // by rank
    int ranks_per_node_ = 0;
    std::optional<std::string> device_;  // none: host memory
    std::vector<Group> groups_;
    std::vector<Row> rows_;
};

}  // namespace

void take_links(Machine& machine, const std::string& paths, int num_ranks) {
    std::vector<BenchFile> reports;
    std::istringstream list(paths);
    for (std::string path; std::getline(list, path, ',');) {
        reports.emplace_back(path).check_fits(machine, num_ranks);
    }
    for (const bool between : {false, true}) {
        Links& links = between ? machine.between_nodes : machine.in_node;
        for (const BenchFile& report : reports) {
            const bool other_memory = machine.is_gpu && report.in_host_memory();
            if (other_memory && !between) continue;  // says nothing of links between GPUs
            std::optional<Link> link = report.link(between, machine.in_node);
            if (!link) continue;
            if (other_memory) link->source += ", in host memory: GPUs' transfers may differ";
            if (links.measured.empty()) links.usual = *link;
            for (const OpKind kind : report.kinds()) {
                const auto [entry, is_new] = links.measured.emplace(kind, *link);
                if (!is_new) {
                    throw UserError(
                        "--links has two measurements of the same links: {} and {}; leave one out",
                        entry->second.source, link->source);
                }
            }
        }
    }
}

}  // namespace argosy::plan
