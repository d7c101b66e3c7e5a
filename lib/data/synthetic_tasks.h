// Evaluation tasks for the contents of the synthetic corpus, made with the same grammar but with their own
// documents. Formats: data/README.md.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>

#include "data/random_stream.h"

namespace argosy::data {

struct SyntheticTask {
    const char* name;  // of the file NAME.jsonl
    int num_records;
    nlohmann::json (*record)(RandomStream& random);  // multiple choice, or a text
};

extern const std::array<SyntheticTask, 4> kSyntheticTasks;

}  // namespace argosy::data
