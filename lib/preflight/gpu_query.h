// Facts about a node's GPUs from nvidia-smi. The query uses field names that old and new drivers know; one
// timeout covers all calls of nvidia-smi together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

struct GpuAnswer {
    std::vector<Gpu> gpus;
    std::string problem;  // one line; empty after success, and if there is no nvidia-smi
    bool hung = false;    // nvidia-smi did not end within the timeout
};

GpuAnswer query_gpus(const Sources& sources);

}  // namespace argosy::preflight
