// The limits below which a speed is a finding. A site may move them (preflight --threshold), because a speed
// that means a fault on one site may be intended on another.
#pragma once

#include <span>
#include <string>

namespace argosy::preflight {

/// Shares of a rate that is usual or expected.
struct Thresholds {
    double peers = 0.75;      // of the median of the other ranks, groups or nodes
    double line = 0.7;        // of line_rate(), for a WARN
    double line_fail = 0.25;  // of line_rate(), for a FAIL
    double nvlink = 0.5;      // of nvlink_rate()
    /// An H200 (700 W) reaches 680 of 989 TFLOP/s in bf16 at its power limit, 69 %. A GPU at half the peak is
    /// held back.
    double peak = 0.5;
    /// Copies of pinned memory reach 80 to 90 % of a PCIe link's rate. A link of half the rate, which has
    /// trained at the generation below or lacks half of its lanes, reaches at most 45 % of the rate that it
    /// should have.
    double pcie = 0.55;
    double clocks = 0.85;  // of the median of GPUs of the same model
};

struct Threshold {
    const char* name;
    double Thresholds::*value;
    double max;           // the largest value that set_threshold() accepts
    const char* meaning;  // what a speed is a share of, and the level below the limit
};

std::span<const Threshold> threshold_table();

/// Sets one limit: "line=0.5". UserError for another name, or a value that is not above 0 and at most
/// Threshold::max.
void set_threshold(const std::string& setting, Thresholds& thresholds);

}  // namespace argosy::preflight
