// Environment variables that slow down GPUs or ranks on several nodes, or worse. A run warns of them when it
// starts, and a pre-flight reports them. Each variable is one row of the table.
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
    bool (*holds)(std::string_view value);  // whether this value does harm
    Where where;                            // where the variable matters
    Cost cost;
    const char* why;
    const char* remedy = "unset it";

    /// How a job's ranks are spread over nodes.
    struct Ranks {
        bool several_a_node, fabric_between_nodes;  // a fabric: network adapters that are up
    };
    bool matters(const Ranks& ranks) const;

    /// The variable's value in `variables` (communication_variables()) if that value does harm, else null.
    const std::string* harmful_value(const std::vector<std::pair<std::string, std::string>>& variables) const;
};

std::span<const SlowSetting> slow_settings();

}  // namespace argosy
