// The number types of a run: their names in other rooms and in LibTorch, their text, the speeds of products
// of them, and warnings of types that are slow on a device.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <string>

#include "base/element_type.h"
#include "comm/mesh.h"
#include "config/job_config.h"
#include "gpu/element_type.h"
#include "observe/metrics.h"
#include "train/trainer.h"

namespace argosy::setup {

inline ElementType element_type(config::Precision precision) {
    using enum ElementType;
    constexpr ElementType kTypes[] = {Float16, BFloat16, Float32, Float64};
    return kTypes[static_cast<int>(precision)];
}

inline at::ScalarType scalar_type(config::Precision precision) {
    return *gpu::scalar_type(element_type(precision));
}

/// The names of the types of matrix products, of the weights that the optimizer updates, and of sums of
/// gradients over ranks.
std::array<std::string, 3> number_types(const config::Training& training);

/// "computes in bfloat16, weights in float32, gradients summed over ranks in float32".
std::string number_types_line(const config::Training& training);

/// A warning for a run whose products are slower than those of another type on this device, with the factor;
/// empty for others. `datasheet` and `compute_datasheet` are those of JobFigures, `capability` is that of the
/// GPU (90 for 9.0).
std::string slow_type_on_gpu(const config::Training& training, const observe::JobFigures& figures,
                             int capability);

/// The same for this processor, whose products are measured if it has no instructions for bfloat16.
std::string slow_type_on_processor(const config::Training& training);

/// The figures of a job: the device's peaks for matrix products in the datasheets and, if enabled, measured
/// and logged. Rank 0 warns of a type that is slow on its device.
observe::JobFigures job_figures(const config::JobConfig& config, const train::TrainerOptions& options,
                                const comm::Mesh& mesh);

}  // namespace argosy::setup
