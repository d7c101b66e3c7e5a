// What nvidia-smi tells of a node's GPUs, asked for with names that old and new drivers know, within one time
// limit for all questions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "preflight/facts.h"
#include "preflight/sources.h"

namespace argosy::preflight {

struct GpuAnswer {
    std::vector<Gpu> gpus;
    std::string problem;  // in one line; empty where all went well, and where there is no nvidia-smi
    bool hung = false;
};

GpuAnswer query_gpus(const Sources& sources);

}  // namespace argosy::preflight
