#include "train/tiny_run.h"

namespace argosy::testing {
namespace {

using parallel::Reshard;

constexpr parallel::TensorOptions kOverlap{.overlap_products = true}, kGatherLogits{.gather_logits = true};
constexpr parallel::ContextOptions kRing{.rotation = parallel::ContextOptions::Rotation::Ring},
    kInOrder{.balance = layout::ContextBalance::None},
    kRingInOrder{parallel::ContextOptions::Rotation::Ring, layout::ContextBalance::None};

}  // namespace

std::vector<Layout> every_layout(int num_ranks) {
    switch (num_ranks) {
        case 1:
            return {{"one"}};
        case 2:
            return {{"ddp2", {.replicate = 2}},
                    {"fsdp2", {.shard = 2}},
                    {"fsdp2_never", {.shard = 2}, {}, "1F1B", Reshard::Never},
                    {"tp2", {.tensor = 2}},
                    {.name = "tp2_async", .mesh = {.tensor = 2}, .tensor = kOverlap},
                    {.name = "tp2_all_logits", .mesh = {.tensor = 2}, .tensor = kGatherLogits},
                    {"pp2", {.pipeline = 2}, {3, 2}},
                    {"pp2_gpipe", {.pipeline = 2}, {1, 4}, "GPipe"},
                    {"pp2_interleaved", {.pipeline = 2}, {1, 2, 1, 1}, "Interleaved1F1B"},
                    {"pp2_interleaved_zb", {.pipeline = 2}, {0, 1, 1, 1, 1, 1}, "InterleavedZeroBubble"},
                    {"pp2_zbv", {.pipeline = 2}, {2, 1, 2, 0}, "ZBVZeroBubble"},
                    {"cp2", {.context = 2}},
                    {.name = "cp2_ring", .mesh = {.context = 2}, .context = kRing},
                    {.name = "cp2_in_order", .mesh = {.context = 2}, .context = kInOrder}};
        case 4:
            return {{"fsdp4", {.shard = 4}},
                    {"hsdp2x2", {.replicate = 2, .shard = 2}},
                    {"ddp2_tp2", {.replicate = 2, .tensor = 2}},
                    {"tp2_pp2", {.pipeline = 2, .tensor = 2}, {2, 3}},
                    {"tp4_kv_replicas", {.tensor = 4}},
                    {.name = "tp4_async", .mesh = {.tensor = 4}, .tensor = kOverlap},
                    {"ddp2_pp2", {.pipeline = 2, .replicate = 2}, {3, 2}},
                    {"pp4", {.pipeline = 4}, {1, 2, 2, 0}},
                    {"fsdp2_pp2", {.pipeline = 2, .shard = 2}, {3, 2}, "1F1B", Reshard::Never},
                    {"pp4_zb", {.pipeline = 4}, {1, 2, 2, 0}, "InterleavedZeroBubble"},
                    {"ddp2_pp2_zbv", {.pipeline = 2, .replicate = 2}, {1, 1, 2, 1}, "ZBVZeroBubble"},
                    {"fsdp2_pp2_interleaved", {.pipeline = 2, .shard = 2}, {2, 1, 1, 1}, "Interleaved1F1B"},
                    {.name = "cp4_in_order", .mesh = {.context = 4}, .context = kInOrder},
                    {.name = "cp4_ring", .mesh = {.context = 4}, .context = kRingInOrder},
                    {.name = "fsdp2_tp2", .mesh = {.shard = 2, .tensor = 2}, .tensor = kOverlap},
                    {"fsdp2_cp2", {.shard = 2, .context = 2}},
                    {.name = "ddp2_cp2", .mesh = {.replicate = 2, .context = 2}, .context = kRing},
                    {"cp2_tp2", {.context = 2, .tensor = 2}},
                    {.name = "cp2_pp2",
                     .mesh = {.pipeline = 2, .context = 2},
                     .stage_layers = {3, 2},
                     .context = kRing}};
        default:
            return {
                {"fsdp2_tp2_pp2", {.pipeline = 2, .shard = 2, .tensor = 2}, {3, 2}, "1F1B", Reshard::Never},
                {"fsdp2_tp2_pp2_reshard", {.pipeline = 2, .shard = 2, .tensor = 2}, {2, 3}},
                {"hsdp2x2_tp2", {.replicate = 2, .shard = 2, .tensor = 2}},
                {"hsdp2x2_pp2", {.pipeline = 2, .replicate = 2, .shard = 2}, {3, 2}},
                {"fsdp2_tp2_pp2_zbv",
                 {.pipeline = 2, .shard = 2, .tensor = 2},
                 {2, 1, 1, 1},
                 "ZBVZeroBubble"},
                {"hsdp2x2_pp2_zb",
                 {.pipeline = 2, .replicate = 2, .shard = 2},
                 {1, 2, 1, 1},
                 "InterleavedZeroBubble",
                 Reshard::Never},
                {"fsdp8", {.shard = 8}},
                {"fsdp2_cp2_tp2", {.shard = 2, .context = 2, .tensor = 2}},
                {.name = "cp2_tp2_pp2",
                 .mesh = {.pipeline = 2, .context = 2, .tensor = 2},
                 .stage_layers = {2, 3},
                 .context = kRing,
                 .tensor = kOverlap},
                {.name = "ddp2_fsdp2_cp2",
                 .mesh = {.replicate = 2, .shard = 2, .context = 2},
                 .context = kRing}};
    }
}

}  // namespace argosy::testing
