// The message of a training run whose memory ran out: how many bytes were requested and where, what held the
// rest of the memory, and which settings need less.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "config/job_config.h"
#include "observe/shortage.h"
#include "plan/large_tensors.h"
#include "plan/rank_trace.h"

namespace argosy::plan {

/// Facts of the run that the Shortage does not have.
struct ShortageFacts {
    std::string place = {};   // " in the optimizer"; empty: not known
    bool reads_data = false;  // whether that place is the reading of a step's data
    /// Bytes that the model would have held, if its construction failed, and that it holds, once it is made.
    std::optional<plan::HeldBytes> planned = {}, held = {};
    std::span<const LargeTensor> tensors = {};  // those whose size a request may have
};

/// Whether the host's memory ran out in a run on GPUs, whose model is not there.
bool is_beside_the_model(const observe::Shortage& found, bool on_gpu);

std::string shortage_text(const config::JobConfig& config, const ShortageFacts& facts,
                          const observe::Shortage& found, bool on_gpu);

}  // namespace argosy::plan
