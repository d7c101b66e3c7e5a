// Links from reports of nccl-bench that are made up for known links; plan_test.py reads a real one.
#include "plan/machine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "expect_error.h"
#include "plan/gpus.h"
#include "scratch_folder.h"

namespace argosy::plan {
namespace {

using comm::OpKind;
using nlohmann::ordered_json;

constexpr double kInNode = 300e9, kBetween = 40e9, kLatency = 3e-6, kFarLatency = 12e-6;

/// The report of a job of `nodes` x `per_node` ranks, whose links are those above.
struct Report {
    std::string collective = "all_gather";
    int nodes = 2, per_node = 4;
    bool with_mesh = true;
    int64_t min_bytes = 1 << 10, max_bytes = 1 << 28;
    const char* device = "NVIDIA H100";

    /// Each rank has an equal part of `bytes` for every rank.
    static double seconds_of_parts(int64_t bytes, int ranks, int num_nodes) {
        const double part = static_cast<double>(bytes) / ranks, in_node = ranks / num_nodes - 1;
        const double near = part * in_node / kInNode, far = part * (ranks - 1 - in_node) / kBetween;
        return (in_node > 0 ? kLatency : 0) + (num_nodes > 1 ? kFarLatency : 0) + std::max(near, far);
    }

    /// The nccl-tests formulas: the time of a ring through `ranks` ranks on `num_nodes` nodes.
    double seconds(int64_t bytes, int ranks, int num_nodes) const {
        if (collective == "alltoall") return seconds_of_parts(bytes, ranks, num_nodes);
        const double rounds = collective == "all_reduce" ? 2 : 1;
        const double moved = collective == "sendrecv"
                                 ? static_cast<double>(bytes)
                                 : rounds * (ranks - 1) / ranks * static_cast<double>(bytes);
        if (collective == "sendrecv")
            return num_nodes > 1 ? kFarLatency + moved / kBetween : kLatency + moved / kInNode;
        if (num_nodes == 1) return rounds * (ranks - 1) * kLatency + moved / kInNode;
        if (num_nodes == ranks) return rounds * num_nodes * kFarLatency + moved / kBetween;
        const double latency = (ranks - 1 - num_nodes) * kLatency + num_nodes * kFarLatency;
        return rounds * latency + std::max(moved / kInNode, moved * num_nodes / ranks / kBetween);
    }

    ordered_json axis(const char* name, int size) const {
        return {{"axis", name},
                {"num_groups", nodes * per_node / size},
                {"group_size", size},
                {"transport", ordered_json::array()},
                {"out_of_bounds", {{"count", 0}, {"okay", true}}}};
    }

    /// The times are off by up to 2 %, and one of each axis is three times as long.
    void add_rows(ordered_json& results, const char* axis, int ranks, int num_nodes) const {
        int number = 0;
        for (int64_t bytes = min_bytes; bytes <= max_bytes; bytes *= 2, ++number) {
            const double noise = number == 1 ? 3 : 1 + 0.01 * (number * 7 % 5 - 2);
            const double microseconds = 1e6 * seconds(bytes, ranks, num_nodes) * noise;
            results.push_back({{"axis", axis},
                               {"size", bytes},
                               {"out_of_place", {{"time_us", microseconds}}},
                               {"in_place", {{"time_us", microseconds}}}});
        }
    }

    ordered_json json() const {
        ordered_json ranks = ordered_json::array(), results = ordered_json::array(),
                     axes = ordered_json::array();
        for (int rank = 0; rank < nodes * per_node; ++rank) {
            ordered_json found = device ? ordered_json{{"name", device}} : ordered_json();
            ranks.push_back({{"host", fmt::format("node{}", rank / per_node)}, {"device", found}});
        }
        axes.push_back(axis("all", nodes * per_node));
        add_rows(results, "all", nodes * per_node, nodes);
        if (with_mesh) {
            axes.push_back(axis("within", per_node));
            add_rows(results, "within", per_node, 1);
            axes.push_back(axis("across", nodes));
            add_rows(results, "across", nodes, nodes);
        }
        return {{"format", "argosy nccl-bench"},  {"version", 3},       {"collective", collective},
                {"config", {{"devices", ranks}}}, {"results", results}, {"axes", axes}};
    }
};

class LinksOfAFile : public ::testing::Test {
  protected:
    std::string write(const std::string& text) {
        const auto path = folder_ / fmt::format("{}.json", num_files_++);
        std::ofstream(path) << text;
        return path.string();
    }
    std::string write(const Report& report) { return write(report.json().dump()); }

    /// An H100 in nodes of 4, with the links of these files.
    Machine machine(const std::string& paths, int num_ranks = 8) const {
        Machine found = named_gpu("h100");
        found.ranks_per_node = 4;
        take_links(found, paths, num_ranks);
        return found;
    }

    static void expect_link(const Link& link, double speed, double latency) {
        EXPECT_NEAR(link.bytes_per_second / speed, 1, 0.05) << link.source;
        EXPECT_NEAR(link.latency_seconds / latency, 1, 0.05) << link.source;
    }

    ScratchFolder folder_;
    int num_files_ = 0;
};

TEST_F(LinksOfAFile, OfAMeshAreFoundInANodeAndBetweenNodes) {
    for (const char* collective : {"all_gather", "reduce_scatter", "all_reduce"}) {
        SCOPED_TRACE(collective);
        const std::string path = write(Report{.collective = collective});
        const Machine found = machine(path);
        expect_link(found.in_node.usual, kInNode, kLatency);
        expect_link(found.between_nodes.usual, kBetween, kFarLatency);
        EXPECT_EQ(found.in_node.usual.source, fmt::format("{} over 4 ranks, {}", collective, path));
        EXPECT_EQ(found.between_nodes.usual.source,
                  fmt::format("{} over 2 ranks of 2 nodes, {}", collective, path));
    }
}

TEST_F(LinksOfAFile, OfMessagesAreThoseOfSendrecv) {
    const Machine found = machine(write(Report{.collective = "sendrecv"}));
    expect_link(found.in_node.of(OpKind::Send), kInNode, kLatency);
    expect_link(found.between_nodes.of(OpKind::Receive), kBetween, kFarLatency);
}

TEST_F(LinksOfAFile, OfAnAllToAllAreThoseOfEqualParts) {
    for (const bool with_mesh : {true, false}) {
        const Machine found = machine(write(Report{.collective = "alltoall", .with_mesh = with_mesh}));
        if (with_mesh) expect_link(found.in_node.of(OpKind::AllToAll), kInNode, kLatency);
        EXPECT_NEAR(found.between_nodes.of(OpKind::AllToAll).bytes_per_second / kBetween, 1, 0.05);
    }
}

TEST_F(LinksOfAFile, OfAllRanksAreThoseBetweenNodes) {
    // The links in a node come from a file of one node.
    const std::string near = write(Report{.nodes = 1, .with_mesh = false}),
                      far = write(Report{.with_mesh = false});
    const Machine found = machine(near + "," + far);
    expect_link(found.in_node.usual, kInNode, kLatency);
    expect_link(found.between_nodes.usual, kBetween, kFarLatency);
    const Machine table = machine(near);
    expect_link(table.in_node.usual, kInNode, kLatency);
    EXPECT_EQ(table.between_nodes.usual.source, "80 % of the datasheet");
}

TEST_F(LinksOfAFile, TakeTheFirstFileForCollectivesThatNoFileHas) {
    Report slow{.collective = "all_reduce"};
    const auto half = [&](ordered_json json) {
        for (ordered_json& row : json["results"])
            row["out_of_place"]["time_us"] = 2 * row["out_of_place"]["time_us"].get<double>();
        return json.dump();
    };
    const Machine found = machine(write(Report{}) + "," + write(half(slow.json())));
    expect_link(found.in_node.of(OpKind::AllReduce), kInNode / 2, 2 * kLatency);
    expect_link(found.in_node.of(OpKind::AllGather), kInNode, kLatency);
    expect_link(found.in_node.of(OpKind::ReduceScatter), kInNode, kLatency);
}

TEST_F(LinksOfAFile, GiveThePlanTheMeasuredTimes) {
    const Report report;
    const Machine found = machine(write(report));
    for (const int64_t bytes : {1 << 12, 1 << 28}) {
        const comm::RecordedOp op{
            .size = 8, .kind = OpKind::AllGather, .type = ElementType::UInt8, .num_elements = bytes};
        const double seconds = found.seconds({&op, 1}, {0, 1, 2, 3, 4, 5, 6, 7});
        EXPECT_NEAR(seconds / report.seconds(bytes, 8, 2), 1, 0.05) << bytes;
    }
}

// nccl-bench over MPI, on a cluster where no job has GPUs yet.
TEST_F(LinksOfAFile, OfHostMemoryAreThoseBetweenNodesOfGpus) {
    const std::string path = write(Report{.device = nullptr});
    const Machine found = machine(path);
    expect_link(found.between_nodes.usual, kBetween, kFarLatency);
    EXPECT_NE(found.between_nodes.usual.source.find("in host memory: GPUs' transfers may differ"),
              std::string::npos);
    EXPECT_TRUE(found.in_node.measured.empty());
    EXPECT_EQ(found.in_node.usual.source, "80 % of the datasheet");
}

TEST_F(LinksOfAFile, RefuseFilesThatDoNotFit) {
    const auto refused = [&](const std::string& path, const std::vector<std::string>& parts,
                             int num_ranks = 8) {
        try {
            machine(path, num_ranks);
            ADD_FAILURE() << parts[0];
        } catch (const UserError& error) {
            expect_message(error.what(), parts);
        }
    };
    refused("absent.json", {"absent.json"});
    refused(write("[project]"), {"--links /"});
    refused(write("{\"format\": 1}"), {"is no report of nccl-bench; measure with: nccl-bench all_gather"});
    ordered_json json = Report{}.json();
    json["version"] = 1;
    refused(write(json.dump()), {"is a report of version 1, and this program reads version 3"});
    json = Report{}.json();
    json.erase("axes");
    refused(write(json.dump()), {"is not as nccl-bench writes it", "axes"});
    json = Report{}.json();
    json["axes"][0]["out_of_bounds"]["okay"] = false;
    refused(write(json.dump()), {"has wrong results"});
    refused(write(Report{.min_bytes = 1 << 28}), {"has too few sizes (1)", "-f 2"});
    refused(write(Report{.min_bytes = 1 << 20}), {"has too few sizes (9)"});
    refused(write(Report{.collective = "gather"}), {"measures gather, which a step does not use"});
    refused(write(Report{.nodes = 1, .per_node = 1}), {"was measured with one rank"});
    refused(write(Report{.per_node = 2}),
            {"another number of ranks: 2 on a node, and the plan has 4", "--gpus-per-node 2"});
    refused(write(Report{.per_node = 8}), {"8 on a node, and the plan has 3"}, 3);
    refused(write(Report{.nodes = 1, .device = nullptr}),
            {"in the host memory of one node, which says nothing of h100", "--backend nccl"});
    const std::string path = write(Report{});
    refused(path + "," + path, {"two measurements of the same links"});
}

}  // namespace
}  // namespace argosy::plan
