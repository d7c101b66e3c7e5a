// The layouts, by number of ranks, for which tests compare a rank's memory with the program's estimate.
#pragma once

#include <vector>

#include "support/world.h"
#include "train/tiny_run.h"

namespace argosy::plan {

inline std::vector<testing::Layout> layouts() {
    switch (testing::world().size()) {
        case 2:
            return {{"fsdp2", {.shard = 2}},
                    {"ddp2", {.replicate = 2}},
                    {"tp2", {.tensor = 2}},
                    {"pp2", {.pipeline = 2}, {2, 3}}};
        case 4:
            return {{"fsdp2 tp2", {.shard = 2, .tensor = 2}},
                    {"tp4", {.tensor = 4}},
                    {"pp2 fsdp2", {.pipeline = 2, .shard = 2}, {3, 2}}};
        default:
            return {{"one"}};
    }
}

}  // namespace argosy::plan
