// The limits below which a speed is a finding. A site may move them (preflight --threshold): what one site
// calls broken is another's design.
#pragma once

#include <span>
#include <string>

namespace argosy::preflight {

/// Shares of a rate that is usual or expected.
struct Thresholds {
    double peers = 0.75;
    double line = 0.7;
    double line_fail = 0.25;
    double nvlink = 0.5;
    /// An H200 (700 W) reaches 680 of 989 TFLOP/s in bf16 at its power limit, 69 %. A GPU at half the peak is
    /// held back.
    double peak = 0.5;
    /// Copies of pinned memory reach 80 to 90 % of a PCIe link's rate. A link of half the rate, which has
    /// trained at the generation below or lacks half of its lanes, reaches at most 45 % of the rate that it
    /// should have.
    double pcie = 0.55;
    double clocks = 0.85;
};

struct Threshold {
    const char* name;
    double Thresholds::*value;
    double most;          // the largest value
    const char* meaning;  // what a speed is a share of, and the level below the limit
};

std::span<const Threshold> threshold_table();

/// Sets one limit: "line=0.5". UserError for another name, or a value that is not above 0 and at most
/// Threshold::most.
void set_threshold(const std::string& setting, Thresholds& thresholds);

}  // namespace argosy::preflight
