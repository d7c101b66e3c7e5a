// A transport without a network: every rank computes and exchanges at made-up speeds, with a little noise.
// Tests plant bad ranks, nodes and paths.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/collective.h"
#include "preflight/speed.h"

namespace argosy::preflight {

constexpr double kNoDeadline = 1e9;

class SimulatedMeter : public Meter {
  public:
    SimulatedMeter(int num_nodes, int ranks_per_node)
        : ranks_per_node_(ranks_per_node),
          rails_(num_nodes * ranks_per_node, 1.0),
          products_(num_nodes * ranks_per_node, 1.0) {}

    // Shares of the usual speed.
    void slow_rail(int rank, double share) { rails_[rank] = share; }
    void slow_node(int node, double share) {
        for (int i = 0; i < ranks_per_node_; ++i) rails_[node * ranks_per_node_ + i] = share;
    }
    /// A node has fewer ranks than the others.
    void fewer_ranks(int node, int number) { num_ranks_[node] = number; }
    void slow_path(int first, int second, double share) { paths_[std::minmax(first, second)] = share; }
    void slow_products(int rank, double share) { products_[rank] = share; }
    void wrong_data(int node) { wrong_.insert(node); }
    /// The switch (leaf) of each node. The links of a leaf to the others carry at full speed what
    /// `num_uplinks` nodes send, and the pairs of a round that use them share them equally.
    void taper(std::vector<int> leaves, double num_uplinks) {
        leaves_ = std::move(leaves), num_uplinks_ = num_uplinks;
    }

    /// The time of each measurement.
    void take_seconds(double seconds) { seconds_each_ = seconds; }

    int num_rounds() const { return num_rounds_; }

    std::string library() const override { return "a simulation"; }
    std::vector<cuda::Device> devices() const override { return std::vector<cuda::Device>(rails_.size()); }
    double seconds_passed() override { return seconds_passed_; }

    std::vector<double> products() override {
        seconds_passed_ += seconds_each_;
        std::vector<double> rates;
        for (const double share : products_) rates.push_back(700e12 * share * noise());
        return rates;
    }

    /// A group is as slow as its slowest rank, or the slowest path between nodes next to each other.
    OperationSpeed operation(const StepOperation& operation) override {
        seconds_passed_ += seconds_each_;
        OperationSpeed speed{operation, {}};
        for (const std::vector<int>& group : operation.groups) {
            double share = 1;
            const bool within = group.front() / ranks_per_node_ == group.back() / ranks_per_node_;
            for (size_t i = 0; i < group.size() && !within; ++i) {
                const int previous = group[i == 0 ? group.size() - 1 : i - 1];
                share = std::min({share, rails_[group[i]],
                                  share_of_path(previous / ranks_per_node_, group[i] / ranks_per_node_)});
            }
            speed.bus_bandwidths.push_back((within ? 400e9 : 48e9) * share * noise());
        }
        return speed;
    }

    std::vector<PairSpeed> pairs(const Round& round) override {
        ++num_rounds_;
        seconds_passed_ += seconds_each_;
        std::vector<PairSpeed> pairs;
        const std::map<int, int> num_leaving = pairs_that_leave(round);
        for (int node = 0; node < std::ssize(round); ++node) {
            const int partner = round[node];
            if (partner <= node) continue;
            PairSpeed pair{node, partner};
            const double path =
                std::min(share_of_path(node, partner), share_of_leaves(node, partner, num_leaving));
            for (int i = 0; i < std::min(num_ranks(node), num_ranks(partner)); ++i) {
                const double ends =
                    std::min(rails_[node * ranks_per_node_ + i], rails_[partner * ranks_per_node_ + i]);
                pair.rails.push_back(48e9 * std::min(ends, path) * noise());
            }
            if (wrong_.contains(node) || wrong_.contains(partner)) pair.num_wrong = 3;
            pairs.push_back(std::move(pair));
        }
        return pairs;
    }

  private:
    double noise() { return std::uniform_real_distribution(0.98, 1.0)(random_); }

    double share_of_path(int first, int second) const {
        const auto found = paths_.find(std::minmax(first, second));
        return found == paths_.end() ? 1 : found->second;
    }

    int num_ranks(int node) const {
        return num_ranks_.contains(node) ? num_ranks_.at(node) : ranks_per_node_;
    }

    int leaf_of(int node) const { return leaves_.empty() ? 0 : leaves_[node]; }

    /// For each leaf, the number of pairs with one node in it.
    std::map<int, int> pairs_that_leave(const Round& round) const {
        std::map<int, int> numbers;
        for (int node = 0; node < std::ssize(round); ++node) {
            if (leaf_of(node) != leaf_of(round[node])) ++numbers[leaf_of(node)];
        }
        return numbers;
    }

    double share_of_leaves(int first, int second, const std::map<int, int>& num_leaving) const {
        if (leaf_of(first) == leaf_of(second)) return 1;
        const int most = std::max(num_leaving.at(leaf_of(first)), num_leaving.at(leaf_of(second)));
        return std::min(1.0, num_uplinks_ / most);
    }

    int ranks_per_node_, num_rounds_ = 0;
    std::vector<int> leaves_;  // by node; empty: all are at one switch
    double num_uplinks_ = 0;
    double seconds_each_ = 0, seconds_passed_ = 0;
    std::vector<double> rails_, products_;  // by rank
    std::map<int, int> num_ranks_;          // of the nodes that have fewer
    std::map<std::pair<int, int>, double> paths_;
    std::set<int> wrong_;
    std::mt19937 random_{7};
};

}  // namespace argosy::preflight
