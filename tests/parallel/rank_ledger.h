// The state of one rank while the simulator runs its program without computing: which operations have run,
// which weights are gathered, which gradients still need a sum, which activations each slot holds, and which
// messages it receives. The ledger finds faults within one rank. The simulator, which owns one ledger for
// each rank, finds faults between ranks.
#pragma once

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/lowering.h"

namespace argosy::parallel {

class RankLedger {
  public:
    /// REQUIRES: options outlive the ledger.
    RankLedger(int rank, const Program& program, const ScheduleShape& shape, const LoweringOptions& options);

    /// Records the program's next op. Returns the fault that it finds, or an empty string.
    std::string enter(const UnitOp& op);
    /// Called after the program's last op. Returns what is missing, or an empty string.
    std::string close() const;

    /// Maxima over the program so far: slots in use at once, and units whose weights are gathered at once.
    int max_in_flight() const { return max_in_flight_; }
    int max_gathered() const { return max_gathered_; }

  private:
    using Work = std::tuple<UnitOpKind, int, int, int>;  // kind, stage, unit, microbatch
    using Unit = std::pair<int, int>;                    // stage, unit
    using Set = std::pair<Unit, int>;                    // unit, number of the set
    using Activations = std::pair<int, int>;             // stage, microbatch

    void expect(int stage, int microbatch, const ScheduleShape& shape);
    std::string enter_work(const UnitOp& op);
    std::string use_slot(int slot, const Activations& own);
    std::string receive(const UnitOp& op);
    std::string take(const UnitOp& op);
    std::string gather(const Set& set);
    std::string release(const Set& set);
    std::string reduce(const Set& set);
    std::string finish_reduce(const Set& set);
    std::string sum(const Set& set);
    std::string finish_sum(const Set& set);
    std::string exchange_table(const UnitOp& op);
    bool has_all_gradients(const Set& set) const;
    const UnitSet* find(const Set& set) const;
    std::vector<Set> sharded_sets(const Unit& unit) const;

    const LoweringOptions& options_;
    std::set<Work> open_;                     // operations that still have to run
    std::map<Activations, int> num_to_come_;  // number of later ops that use these activations
    int num_slots_;
    std::map<int, Activations> slots_;    // by slot: the activations that it holds now
    std::map<Activations, int> slot_of_;  // the slot in which these activations are or were
    std::map<Set, bool> gathered_;        // sets with gathered weights; true if an op has used them
    std::set<Set> unreduced_;             // sets with gradients that no Reduce has taken yet
    std::set<Set> reducing_;              // those sets of one unit whose reductions are under way
    std::set<Set> unsummed_;              // sets that still need their sum over ranks
    std::set<Set> summing_;               // sets whose sum over ranks is under way
    std::set<int> splits_head_;           // microbatches whose head has a BackwardWeight of its own
    /// The receives whose messages were not taken: whether of an activation, stage, microbatch.
    std::set<std::tuple<bool, int, int>> receiving_;
    int max_in_flight_ = 0, max_gathered_ = 0;
};

}  // namespace argosy::parallel
