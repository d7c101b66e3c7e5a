// Environment variables that make GPUs, or ranks on several nodes, slow or worse: what a run warns of when it
// starts and what a pre-flight judges. A variable is a row of the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace argosy {

struct SlowSetting {
    enum class Where { Everywhere, SeveralRanksANode, FabricBetweenNodes };
    enum class Cost { Slows, Ruins };

    const char* variable;
    bool (*holds)(std::string_view value);  // not every value does harm
    Where where;                            // it matters
    Cost cost;
    const char* why;
    const char* remedy = "unset it";

    /// Of a job, as its ranks lie.
    struct Ranks {
        bool several_a_node, fabric_between_nodes;  // a fabric: adapters that are up
    };
    bool matters(const Ranks& ranks) const;

    /// The variable's value among those of the environment (communication_variables) where the value does
    /// harm, else null.
    const std::string* harmful_value(const std::vector<std::pair<std::string, std::string>>& variables) const;
};

std::span<const SlowSetting> slow_settings();

}  // namespace argosy
