// The links of a machine as nccl-bench measured them: reads its JSON files (bench/FORMAT.md).
//
// A file has the times of one collective by size, in groups of ranks of one node, of one rank of each node,
// or of several ranks of each node. A group of the first kind gives the links in a node, the others those
// between nodes. Within a node the largest group counts. Between nodes the group with one rank of each node
// counts, because it uses all adapters. The links between nodes are taken to be the slowest part of a ring
// through several ranks of each node. An operation is taken to need (Machine)
//   hops * latency + bytes over the slowest link / bandwidth.
// The latency is the median over the three smallest sizes and the bandwidth the median over the three
// largest; for each, the time of the other part is subtracted first. Neither a change of the library's
// protocol at a size between them nor one slow row changes them.
#pragma once

#include <string>

#include "plan/machine.h"

namespace argosy::plan {

/// Replaces the links of `machine` by those in `paths`, files that are separated by commas. Collectives that
/// no file has get the link of the first file that has one. Links that no file has stay. Throws UserError for
/// a file that is no such report, has too few sizes, or was measured in host memory for GPUs or the other way
/// around, or with another number of ranks on a node than `machine` has for a job of `num_ranks`. The name of
/// the GPU is not compared: a report says what its machine calls it.
void take_links(Machine& machine, const std::string& paths, int num_ranks);

}  // namespace argosy::plan
