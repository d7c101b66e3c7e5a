#include "parallel/own_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace argosy::parallel {
namespace {

using enum ActionKind;

constexpr const char* kRule =
    "for each microbatch, a stage has F and later B, or in place of B an I and later a W, each once";

constexpr std::pair<ActionKind, char> kLetters[] = {
    {Forward, 'F'}, {Backward, 'B'}, {BackwardInput, 'I'}, {BackwardWeight, 'W'}};

/// Takes the number of a stage or a microbatch from the front of `text`.
std::optional<int> take_number(std::string_view& text) {
    constexpr int kMaxNumber = 1 << 20;
    int number = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 0 || number > kMaxNumber) return std::nullopt;
    text.remove_prefix(rest - text.data());
    return number;
}

std::optional<Action> action_from(std::string_view text) {
    const auto stage = take_number(text);
    if (!stage || text.empty()) return std::nullopt;
    const auto kind = std::ranges::find(kLetters, text.front(), &std::pair<ActionKind, char>::second);
    text.remove_prefix(1);
    const auto microbatch = take_number(text);
    if (kind == std::end(kLetters) || !microbatch || !text.empty()) return std::nullopt;
    return Action{kind->first, *stage, *microbatch};
}

class ActionCheck {
  public:
    ActionCheck(const ScheduleShape& shape, const std::string& name)
        : shape_(shape), stages_(shape.stages()), name_(name) {}

    void add(int rank, const Action& action) {
        const std::string wrong = fault(rank, action);
        if (!wrong.empty()) throw UserError("{}, row {}: {} {}", name_, rank + 1, cell(action), wrong);
        ran_.insert({action.kind, action.stage, action.microbatch});
    }

    void finish() const {
        for (int stage = 0; stage < shape_.num_stages; ++stage) {
            for (int i = 0; i < shape_.num_microbatches; ++i) {
                if (ran(Backward, stage, i) || ran(BackwardWeight, stage, i)) continue;
                const ActionKind missing = !ran(Forward, stage, i)        ? Forward
                                           : ran(BackwardInput, stage, i) ? BackwardWeight
                                                                          : Backward;
                throw UserError("{} has no {}; a step has {} microbatches, and {}", name_,
                                cell({missing, stage, i}), shape_.num_microbatches, kRule);
            }
        }
    }

  private:
    bool ran(ActionKind kind, int stage, int microbatch) const {
        return ran_.contains({kind, stage, microbatch});
    }

    std::string fault(int rank, const Action& action) const {
        const auto& [kind, stage, microbatch] = action;
        if (microbatch >= shape_.num_microbatches) {
            return fmt::format("is of a microbatch that a step does not have; it has {}, numbered from 0",
                               shape_.num_microbatches);
        }
        if (const int row = stages_.rank_of(stage) + 1; row != rank + 1) {
            return fmt::format(
                "belongs into row {}: the rows take the stages in a loop (0 1 0 1) or, with two stages in "
                "each row, there and back (0 1 1 0)",
                row);
        }
        const bool backward = kind == Backward || kind == BackwardInput;
        const bool began = ran(Backward, stage, microbatch) || ran(BackwardInput, stage, microbatch);
        if (ran(kind, stage, microbatch) || (backward && began))
            return std::string("repeats an action: ") + kRule;
        if (backward && !ran(Forward, stage, microbatch))
            return std::string("comes before the F of its microbatch: ") + kRule;
        if (kind == BackwardWeight && !ran(BackwardInput, stage, microbatch)) {
            return std::string("comes before the I of its microbatch, or has none: ") + kRule;
        }
        return "";
    }

    const ScheduleShape shape_;
    const StageMap stages_;
    const std::string& name_;
    std::set<std::tuple<ActionKind, int, int>> ran_;  // kind, stage, microbatch
};

}  // namespace

RankActions read_schedule(const std::string& path) {
    std::ifstream file(path);
    if (!file) {
        throw UserError("parallelism.pipeline_parallel_schedule_csv: cannot open '{}'; check the path", path);
    }
    RankActions ranks;
    for (std::string row, text; std::getline(file, row);) {
        auto& actions = ranks.emplace_back();
        for (std::istringstream cells(row); std::getline(cells, text, ',');) {
            std::erase_if(text, [](char letter) { return letter == ' ' || letter == '\r' || letter == '"'; });
            if (text.empty()) continue;
            const auto action = action_from(text);
            if (!action) {
                throw UserError(
                    "{}, row {}: '{}' is no action; write the stage, one of F, B, I and W, and the "
                    "microbatch, as in 2F0 (transfers are added by the program)",
                    path, ranks.size(), text);
            }
            actions.push_back(*action);
        }
    }
    if (num_stages(ranks) == 0) throw UserError("{} has no actions; write one row for each rank", path);
    return ranks;
}

std::string cell(const Action& action) {
    const auto* letter = std::ranges::find(kLetters, action.kind, &std::pair<ActionKind, char>::first);
    ARGOSY_CHECK(letter != std::end(kLetters), "a transfer has no cell");
    return fmt::format("{}{}{}", action.stage, letter->second, action.microbatch);
}

int num_stages(const RankActions& ranks) {
    int number = 0;
    for (const auto& actions : ranks) {
        for (const Action& action : actions) number = std::max(number, action.stage + 1);
    }
    return number;
}

StageOrder stage_order(const RankActions& ranks) {
    const auto num_ranks = static_cast<int>(ranks.size());
    if (num_ranks == 1 || num_stages(ranks) != 2 * num_ranks) return StageOrder::Loop;
    const bool back =
        std::ranges::any_of(ranks.back(), [&](const Action& action) { return action.stage == num_ranks; });
    return back ? StageOrder::V : StageOrder::Loop;
}

void check_actions(const RankActions& ranks, const ScheduleShape& shape, const std::string& name) {
    ActionCheck check(shape, name);
    if (std::ssize(ranks) != shape.num_ranks) {
        throw UserError(
            "{} has {} rows, but parallelism.pipeline_parallel_degree is {}; write one row for each rank",
            name, ranks.size(), shape.num_ranks);
    }
    for (int rank = 0; rank < shape.num_ranks; ++rank) {
        for (const Action& action : ranks[rank]) check.add(rank, action);
    }
    check.finish();
}

}  // namespace argosy::parallel
