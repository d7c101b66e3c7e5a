// Made-up clusters for the checks: all is well on them until a test spoils something.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "preflight/diagnose.h"

namespace argosy::preflight {

inline AdapterPort adapter_port(const std::string& name, const std::string& link_layer = "InfiniBand",
                                double gigabits = 400) {
    return {.adapter = name,
            .state = "ACTIVE",
            .physical_state = "LinkUp",
            .link_layer = link_layer,
            .gigabits = gigabits};
}

inline Gpu good_gpu(int number) {
    return {.bus_id = "0000000" + std::to_string(number) + ":3B:00.0",
            .name = "NVIDIA H200",
            .driver = "580.65.06",
            .throttle_reasons = 0x1,
            .uncorrected_errors = 0,
            .pcie_lanes = 16,
            .most_pcie_lanes = 16,
            .pcie_generation = 1,  // it sleeps
            .most_pcie_generation = 5,
            .used_mebibytes = 4,
            .total_mebibytes = 143771,
            .mig_mode = "Disabled",
            .uuid = "GPU-" + std::to_string(number) + "d0ac5f4-1111-2222-3333-444444444444"};
}

inline NodeFacts good_node(const std::string& name) {
    NodeFacts node{.name = name,
                   .boot_id = "boot of " + name,
                   .shared_memory = Space{int64_t{64} << 30, int64_t{64} << 30},
                   .num_cpus = 96,
                   .adapter_ports = {adapter_port("mlx5_0"), adapter_port("mlx5_1")},
                   .gpus = {good_gpu(0), good_gpu(1)}};
    node.interfaces = {{.name = "eth0", .state = "up", .megabits = 25000, .leaves_the_machine = true},
                       {.name = "ib0", .state = "up", .megabits = 400000, .leaves_the_machine = true},
                       {.name = "eth1", .state = "down", .leaves_the_machine = true},
                       {.name = "docker0", .state = "up"},
                       {.name = "lo", .state = "unknown"}};
    node.dump_folder = FolderFacts{
        .path = "/scratch/run", .bytes_per_second = 2e9, .space = {int64_t{90} << 40, int64_t{50} << 40}};
    return node;
}

/// Nodes n0, n1, ... with `ranks_per_node` ranks each.
inline Cluster good_cluster(int num_nodes = 2, int ranks_per_node = 2) {
    Cluster cluster;
    for (int n = 0; n < num_nodes; ++n) {
        cluster.nodes.push_back(good_node("n" + std::to_string(n)));
        for (int r = 0; r < ranks_per_node; ++r) {
            cluster.ranks.push_back({.rank = n * ranks_per_node + r,
                                     .node = cluster.nodes.back().name,
                                     .executable_hash = "0123456789abcdef",
                                     .argosy_version = "0.1.0",
                                     .mpi_library = "Open MPI v4.1.4",
                                     .cuda_version = "13.0",
                                     .cpus = std::to_string(4 * r) + "-" + std::to_string(4 * r + 3),
                                     .num_cpus = 4});
        }
    }
    return cluster;
}

/// A machine of a developer, or a container of a test service: no GPU, no fabric, small limits.
inline Cluster small_machine(int num_ranks) {
    Cluster cluster{.nodes = {{.name = "laptop", .boot_id = "x", .num_cpus = 2}}};
    cluster.nodes[0].shared_memory = Space{64 << 20, 64 << 20};
    cluster.nodes[0].interfaces = {{.name = "eth0", .state = "up"}, {.name = "lo", .state = "unknown"}};
    cluster.nodes[0].dump_folder =
        FolderFacts{.path = "/tmp", .bytes_per_second = 1e7, .space = {1 << 30, 1 << 28}};
    for (int rank = 0; rank < num_ranks; ++rank) {
        cluster.ranks.push_back(
            {.rank = rank, .node = "laptop", .memlock_bytes = 8 << 20, .cpus = "0", .num_cpus = 1});
    }
    return cluster;
}

inline void set_variable(RankFacts& rank, const std::string& name, const std::string& value) {
    std::erase_if(rank.variables, [&](const Variable& variable) { return variable.name == name; });
    rank.variables.push_back({name, value});
}
inline void set_everywhere(Cluster& cluster, const std::string& name, const std::string& value) {
    for (RankFacts& rank : cluster.ranks) set_variable(rank, name, value);
}

inline std::vector<std::string> checks_of(const std::vector<Finding>& findings) {
    std::vector<std::string> checks;
    for (const Finding& finding : findings) checks.push_back(finding.check);
    return checks;
}

/// The only finding of the whole diagnosis, which is about `check`.
inline Finding only_finding(const Cluster& cluster, const std::string& check) {
    const std::vector<Finding> findings = diagnose(cluster);
    EXPECT_EQ(checks_of(findings), std::vector{check});
    return findings.empty() ? Finding{} : findings[0];
}

/// All nodes that the findings mark as bad.
inline std::set<std::string> bad_nodes_of(const std::vector<Finding>& findings) {
    std::set<std::string> bad;
    for (const Finding& one : findings) bad.insert(one.bad_nodes.begin(), one.bad_nodes.end());
    return bad;
}

/// That it holds every part in its words or its remedy.
inline void expect_says(const Finding& finding, const std::vector<std::string>& parts) {
    const std::string text = finding.what + "\n" + finding.remedy;
    for (const std::string& part : parts) {
        EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
    }
}

using Names = std::vector<std::string>;

}  // namespace argosy::preflight
