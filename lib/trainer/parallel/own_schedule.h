// A user's own pipeline schedule, in the format of PyTorch's compute-only CSV files: one row for each rank,
// one action in each cell. "2F0" is the forward of stage 2 for microbatch 0; B is Backward, I BackwardInput,
// and W BackwardWeight. Empty cells are skipped.
#pragma once

#include <string>

#include "parallel/schedule.h"

namespace argosy::parallel {

/// Reads the CSV file at `path`. Throws UserError for a cell that is no action, and for a file without any.
RankActions read_schedule(const std::string& path);

/// The text of a cell: "2F0". REQUIRES: the action computes.
std::string cell(const Action& action);

int num_stages(const RankActions& ranks);
/// V if the actions are on the ranks of V, else Loop.
StageOrder stage_order(const RankActions& ranks);

/// Throws UserError, which begins with `name`, unless each stage runs each microbatch forward once, then
/// backward once (as a whole, or the input's half before the weights' half), and on the rank of the stage.
void check_actions(const RankActions& ranks, const ScheduleShape& shape, const std::string& name);

}  // namespace argosy::parallel
