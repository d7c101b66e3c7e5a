// Plans and searches as texts for people, and as JSON.
#pragma once

#include <string>

#include "plan/plan.h"
#include "plan/search.h"

namespace argosy::plan {

/// ": 0.31 s more for exposed tp": the part of the time that grows most from one plan to the other. Empty if
/// none grows.
std::string largest_growth(const Plan& from, const Plan& to);

/// The plan for people: some lines that end with a line break, and the table of tensor_text().
std::string plan_text(const Plan& plan);

/// One JSON object with the keys
///   model, mesh, machine, num_ranks, ranks_per_node, links {in_node, between_nodes: [{collective (null:
///   every other one), bytes_per_second, latency_seconds, source}]}, fits, memory_room_bytes,
///   step_seconds, tokens, tokens_per_second, tokens_per_second_per_device, mfu_causal, planned_imbalance,
///   ranks [{rank, memory
///   {peak_bytes, operation, weights, copies, gradients, moments, gathered, other}, shared_bytes,
///   mapped_shared_bytes, communicators, communicator_bytes, peer_bytes, moved_bytes {axes: {sent,
///   received}}, tensor_collectives [{group, pass, for, collective, in_parts, number, sent, received,
///   seconds, exposed_seconds, product_seconds, why_not}] (overlap.h), flops, seconds {total, compute,
///   optimizer, bubble, exposed {axes: s}, exposed_all_to_all, all_to_all_without_overlap (all_to_all.h),
///   products, attention, passes}}]
/// Memory and bytes are exact for the tensors of a step, without the workspaces of kernels; the shared bytes
/// (rank_trace.h) and times are estimates.
std::string plan_json(const Plan& plan);

/// A table, why each row loses to the row before it, what narrower number types would give, and the keys to
/// set for the first row, as TOML.
std::string search_text(const Search& found);

/// One JSON object: num_planned, num_too_large, given (a plan), best [{changes {key: value}, plan}], reason,
/// nearest (as best), narrower [{meaning, changes, plan}]. A plan is that of plan_json().
std::string search_json(const Search& found);

}  // namespace argosy::plan
