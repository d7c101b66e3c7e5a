// The books of one rank while its program runs on paper: what is computed, which weights are gathered, which
// gradients wait for their sum, which slot holds what. Finds what is unsound within the rank; what passes
// between ranks is the simulator's.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

class RankLedger {
  public:
    /// REQUIRES: options outlive it.
    RankLedger(int rank, const Program& program, const ScheduleShape& shape, const LoweringOptions& options);

    /// Books the program's next op, and says what is wrong with it; empty: nothing.
    std::string enter(const UnitOp& op);
    /// What is missing once the program is through; empty: nothing.
    std::string close() const;

    int most_in_flight() const { return most_in_flight_; }
    int most_gathered() const { return most_gathered_; }

  private:
    using Work = std::tuple<UnitOpKind, int, int, int>;  // kind, stage, unit, microbatch
    using Unit = std::pair<int, int>;                    // stage, unit
    using Activations = std::pair<int, int>;             // stage, microbatch

    void expect(int stage, int microbatch, const ScheduleShape& shape);
    std::string enter_work(const UnitOp& op);
    std::string enter_slot(const UnitOp& op);
    std::string gather(const Unit& unit);
    std::string release(const Unit& unit);
    std::string reduce(const Unit& unit);
    std::string finish_reduce(const Unit& unit);
    std::string sum_replicas(const Unit& unit);
    std::string finish_sum(const Unit& unit);
    bool has_all_gradients(const Unit& unit) const;

    const LoweringOptions& options_;
    std::set<Work> open_;                     // still to be done
    std::map<Activations, int> num_to_come_;  // ops of the program that still work with them
    int num_slots_;
    std::map<int, Activations> slots_;  // what each holds
    std::map<Activations, int> slot_of_;
    std::map<Unit, bool> gathered_;  // whether anything has used them
    std::set<Unit> unreduced_;
    std::optional<Unit> reducing_;
    std::set<Unit> unsummed_;
    std::set<Unit> summing_;
    int most_in_flight_ = 0, most_gathered_ = 0;
};

}  // namespace argosy::parallel
