// The keys of TorchTitan's TOML (its last form, v0.2.2, and older names) that are not keys of this program
// with the same meaning; all others are taken as they are.
#include <fmt/format.h>

#include <algorithm>

#include "config/arrival.h"

namespace argosy::config {
namespace {

using enum Rule::Use;
using enum Need::Place;

constexpr const char* kNoPython =
    "no module of Python is loaded; data, models and losses are those of --help";
constexpr const char* kTrainingData =
    "prepare-data tokenize --input F.jsonl --output F.h5 --tokenizer DIR makes a token file; name it with "
    "training.dataset_path";
constexpr const char* kValidationData =
    "prepare-data tokenize --input F.jsonl --output F.h5 --tokenizer DIR makes a token file; name it with "
    "validation.dataset_path";
constexpr const char* kValidationSteps =
    "steps x validation.local_batch_size samples of the job, not of each rank";
constexpr const char* kSizes = "a Llama or Qwen of like layers, or a config.json in model.hf_assets_path";
constexpr const char* kHeldOut =
    "prepare-data tokenize makes the token file of validation.dataset_path from held-out texts";
constexpr const char* kReader = "the next batch is read and prepared in the background in any case";
constexpr const char* kExperts = "the model is dense, so there are no experts to place or to balance";
constexpr const char* kRestart =
    "jobs/submit.sh --spares K starts a job again from its newest checkpoint when a node is lost";
constexpr const char* kFlight =
    "the last operations of each rank are in flight/rank-R.json of job.dump_folder";
constexpr const char* kMemory =
    "pretrain --plan says what takes a rank's memory, and so does the message of a rank that runs out of it";
constexpr const char* kDeterminate = "recomputation repeats the same bits in any case";
constexpr const char* kMuonTakes =
    "Muon takes the matrices of layers, AdamW all else; compare with the pattern";
constexpr const char* kPlan = "pretrain --plan --config F.toml --gpus N --gpu h100 runs a step without a GPU";

const ForeignKey kKeys[] = {
    {"job.config_file", InWords, "the file of a run is --config F.toml"},
    {"job.print_config", InWords, "pretrain --print-config prints the effective configuration"},
    {"job.print_args", InWords, "pretrain --print-config prints the effective configuration"},
    {"job.save_config_file", InWords, "each start writes effective.toml into job.dump_folder"},
    {"job.custom_config_module", Rule(Nothing, ""), kNoPython},
    {"metrics.use_for_integration_test", Nothing, "it marks files for TorchTitan's own tests"},
    {"job.use_for_integration_test", Nothing, "it marks files for TorchTitan's own tests"},
    {"profiling.enable_memory_snapshot", Rule(Nothing, "false"), kMemory},
    {"profiling.save_memory_snapshot_folder", InWords, kMemory},
    {"profiling.memory_snapshot_max_entries", InWords, kMemory},
    {"profiling.profiler_active", Rule(Nothing, "1"), "a trace has one step; shorten profiling.profile_freq"},
    {"profiling.profiler_warmup", Nothing, "a traced step needs no warm-up"},
    {"metrics.disable_color_printing", Nothing, "the log has no colours"},
    {"metrics.enable_color_printing", Nothing, "the log has no colours"},
    {"metrics.rank_0_only", InWords, "metrics.jsonl is the job's; ranks.jsonl has every rank's times"},
    {"metrics.save_for_all_ranks", InWords, "ranks.jsonl has the times of every rank"},
    {"metrics.enable_wandb", Rule(Nothing, "false"),
     "jobs/export_run.py --wandb DIR RUN makes a run that wandb sync uploads"},
    {"model.name",
     Rule(ToKey, Word{"llama", "llama2"}, "llama2", "llama3", "tinyllama", "qwen2", "qwen3", "mistral"),
     "llama2, llama3, mistral, qwen2 and qwen3, and their relatives by a config.json in "
     "model.hf_assets_path"},
    {"model.flavor",
     Rule(ToKey, Word{"debugmodel", "256x6x16"}, Word{"debugmodel_flex_attn", "false", "256x6x16"},
          Word{"debugmodel_varlen_attn", "false", "256x6x16"}, Word{"8B_flex", "false", "8B"},
          Word{"8B_varlen", "false", "8B"}, Word{"70B_flex", "false", "70B"}, "256x6x16", "4096x12x32",
          "0.5B", "0.6B", "1B", "1.5B", "1.7B", "3B", "4B", "7B", "8B", "14B", "32B", "70B", "405B", "271M",
          "300M", "1.1B", "13B", "26B", "8B-8k", "70B-8k"),
     "a preset of configs/README.md, or a config.json in model.hf_assets_path",
     "training.attend_across_documents", "model.flavor"},
    {"model.tokenizer_path", ToFolder, "the folder of the tokenizer", "model.hf_assets_path"},
    {"model_spec.model.dim", ToModel, kSizes, "hidden_size"},
    {"model_spec.model.vocab_size", ToModel, kSizes, "vocab_size"},
    {"model_spec.model.n_layers", ToModel, kSizes, "num_hidden_layers"},
    {"model_spec.model.layers_differ", Rule(Nothing, ""),
     "like layers of a Llama, or of Qwen 3 with norms of q and k; none has biases"},
    {"model_spec.model.enable_weight_tying", ToModel, kSizes, "tie_word_embeddings"},
    {"model_spec.model.norm.eps", ToModel, kSizes, "rms_norm_eps"},
    {"model_spec.model.norm_eps", ToModel, kSizes, "rms_norm_eps"},
    {"model_spec.model.lm_head.bias", Rule(Nothing, "false"), kSizes},
    {"model_spec.model.layers.attention.n_heads", ToModel, kSizes, "num_attention_heads"},
    {"model_spec.model.layers.attention.n_kv_heads", ToModel, kSizes, "num_key_value_heads"},
    {"model_spec.model.layers.attention.head_dim", ToModel, kSizes, "head_dim"},
    {"model_spec.model.layers.attention.bias", Rule(Nothing, "false"), kSizes},
    {"model_spec.model.layers.attention.wo.bias", Rule(Nothing, "false"), kSizes},
    {"model_spec.model.layers.attention.use_rope", Rule(Nothing, "true"), kSizes},
    {"model_spec.model.layers.attention.attn_mask_type",
     Rule(ToKey, Word{"causal", "true"}, Word{"block_causal", "false"}), "training.attend_across_documents",
     "training.attend_across_documents"},
    {"model_spec.model.layers.attention.inner_attention.window_size", Rule(Nothing, "[\"-1\", \"0\"]"),
     kSizes},
    {"model_spec.model.layers.attention.rope.theta", ToModel, kSizes, "rope_theta"},
    {"model_spec.model.layers.attention.rope.scaling",
     Rule(ToModel, Word{"none", "default"}, Word{"llama", "llama3"}), kSizes, "rope_scaling.rope_type"},
    {"model_spec.model.layers.attention.rope.scaling_factor", ToModel, kSizes, "rope_scaling.factor"},
    {"model_spec.model.layers.attention.rope.low_freq_factor", ToModel, kSizes,
     "rope_scaling.low_freq_factor"},
    {"model_spec.model.layers.attention.rope.high_freq_factor", ToModel, kSizes,
     "rope_scaling.high_freq_factor"},
    {"model_spec.model.layers.attention.rope.original_max_position_embeddings", ToModel, kSizes,
     "rope_scaling.original_max_position_embeddings"},
    {"model_spec.model.layers.attention.rope.max_context_length", ToModel, kSizes, "max_position_embeddings"},
    {"model_spec.model.layers.attention.rope.max_seq_len", ToModel, kSizes, "max_position_embeddings"},
    {"model_spec.model.layers.feed_forward.w1.out_features", ToModel, kSizes, "intermediate_size"},
    {"model_spec.model.layers.feed_forward.hidden_dim", ToModel, kSizes, "intermediate_size"},
    {"model_spec.model.layers.feed_forward.w1.bias", Rule(Nothing, "false"), kSizes},
    {"model_spec.model.layers.feed_forward.bias", Rule(Nothing, "false"), kSizes},
    {"(float8)", InWords, kUnsaidCasts},
    {"model_spec.", Nothing, "the sizes say it"},
    {"model_converters.print_after_conversion", Nothing, "the log names the layers that are not cast"},
    {"model_converters.converters", Rule(Nothing, "[]"), "model.converters"},
    {"model.converters",
     Rule(ToKey, Word{"float8", "quantize.linear.float8"}, Word{"mx", "quantize.linear.mx"},
          Word{"quantize.dense.float8", "quantize.linear.float8"},
          Word{"quantize.dense.mx", "quantize.linear.mx"}, kAnyOther),
     "quantize.linear.float8 or quantize.linear.mx"},
    {"model.print_after_conversion", Nothing, "the log names the layers that are not cast"},
    {"model.norm_type", Rule(Nothing, "rmsnorm", "fused_rmsnorm", "compiled_rmsnorm"),
     "norms are RMSNorm, fused"},
    {"model.use_flex_attn", Rule(Nothing, "false"),
     "training.attend_across_documents = false, in any kernel"},
    {"model.attn_mask_type", Rule(Nothing, "causal"), "training.attend_across_documents = false"},
    {"optimizer.name", ToKey, "AdamW or Muon"},
    {"optimizer.muon.pattern", InWords, kMuonTakes},
    {"optimizer.muon.lr", ToKey, "", "optimizer.lr"},
    {"optimizer.muon.weight_decay", ToKey, "", "optimizer.weight_decay"},
    {"optimizer.muon.momentum", ToKey, "", "optimizer.muon_momentum"},
    {"optimizer.muon.nesterov", ToKey, "", "optimizer.muon_nesterov"},
    {"optimizer.muon.ns_steps", ToKey, "", "optimizer.muon_ns_steps"},
    {"optimizer.muon.adjust_lr_fn", Rule(ToKey, "original", "match_rms_adamw"),
     "optimizer.muon_adjust_lr = \"spectral\" is sqrt(max(rows, columns))", "optimizer.muon_adjust_lr"},
    {"optimizer.muon.per_head", Rule(ToKey, Word{"true", "head"}, Word{"false", "projection"}), "",
     "optimizer.muon_split"},
    {"optimizer.adamw.pattern", InWords, kMuonTakes},
    {"optimizer.adamw.betas", ToKey, "", "optimizer.beta1", "optimizer.beta2"},
    {"optimizer.adamw.eps", ToKey, "", "optimizer.eps"},
    {"optimizer.adamw.", InWords,
     "optimizer.lr and weight_decay are Muon's; [[optimizer.groups]] with lr_factor and weight_decay for "
     "tok_embeddings, output and norm set AdamW's"},
    {"optimizer.implementation",
     Rule(ToKey, Word{"fused_opt_states_bf16", "bfloat16"}, Word{"fused", ""}, Word{"foreach", ""},
          Word{"for-loop", ""}),
     "updates are fused", "optimizer.state_dtype"},
    {"optimizer.betas", ToKey, "", "optimizer.beta1", "optimizer.beta2"},
    {"optimizer.optimizer_factory_kwargs_by_name.", Rule(Nothing, ""), "AdamW"},
    {"optimizer.param_groups.", Rule(Nothing, ""),
     "one group of all parameters; optimizer.decay_all_parameters = false decays matrices alone"},
    {"optimizer.fused", Nothing, "updates are fused"},
    {"optimizer.early_step_in_backward", Rule(Nothing, "false"),
     "training.gradient_accumulation_dtype and optimizer.state_dtype = \"bfloat16\" save memory"},
    {"training.dataset", InWords,
     "prepare-data tokenize makes the token file of training.dataset_path from JSONL, text or Parquet"},
    {"training.dataset_path", ToKey, kTrainingData},
    {"training.enable_cpu_offload", Rule(Nothing, "false"),
     "more shards, optimizer.state_dtype = \"bfloat16\" or activation_checkpoint.mode = \"full\"; pretrain "
     "--search chooses"},
    {"training.enable_compiled_autograd", Nothing, "the backward pass is written out"},
    {"training.num_tokens_per_microbatch_per_dp_rank", ToQuotient, "samples of training.seq_len tokens",
     "training.local_batch_size", "training.seq_len"},
    {"training.num_tokens_per_train_step", ToQuotient, "samples of training.seq_len tokens",
     "training.global_batch_size", "training.seq_len"},
    {"training.mixed_precision_param", ToKey, "bfloat16, whose range needs no loss scale"},
    {"training.disable_cuda_graphs", Rule(ToKey, Word{"true", "false"}, Word{"false", ""}),
     "CUDA graphs need no other settings", "compile.graphs"},
    {"training.gc_freq", Nothing, "there is no garbage collector that could stop a rank"},
    {"training.gc_debug", Nothing, "there is no garbage collector"},
    {"training.warmup_pct", Rule(Nothing, ""), "lr_scheduler.warmup_steps counts steps"},
    {"training.enable_selective_ac", Rule(Nothing, "false"), "activation_checkpoint.mode = \"selective\""},
    {"experimental.torch_spmd", Nothing, "the cuts of each parameter are set in one place in any case"},
    {"training.data_parallel_type", Rule(Nothing, "fsdp"),
     "parallelism.data_parallel_replicate_degree is DDP, data_parallel_shard_degree is FSDP"},
    {"training.dataloader.", Nothing, kReader},
    {"parallelism.module_fqns_per_model_part", Rule(Nothing, "[]"),
     "parallelism.pipeline_parallel_layers_per_stage: the number of layers of each stage, as 3,4,3"},
    {"parallelism.pipeline_parallel_schedule",
     Rule(ToKey, Word{"1f1b", "1F1B"}, Word{"gpipe", "GPipe"}, Word{"interleave_1f1b", "Interleaved1F1B"},
          Word{"interleaved_1f1b", "Interleaved1F1B"}, Word{"flexible_interleaved_1f1b", "Interleaved1F1B"},
          Word{"interleaved1f1b", "Interleaved1F1B"}, Word{"zbv", "ZBVZeroBubble"}, kAnyOther),
     "1F1B, GPipe, Interleaved1F1B, InterleavedZeroBubble or ZBVZeroBubble"},
    {"parallelism.pipeline_parallel_split_points", Rule(Nothing, "[]"),
     "parallelism.pipeline_parallel_layers_per_stage"},
    {"parallelism.pipeline_parallel_microbatches", Rule(Nothing, ""),
     "parallelism.pipeline_parallel_microbatch_size: the samples of one"},
    {"parallelism.enable_compiled_autograd", Nothing, "the backward pass is written out"},
    {"parallelism.num_pp_microbatches", Nothing,
     "a step of a pipeline has training.local_batch_size / pipeline_parallel_microbatch_size microbatches"},
    {"parallelism.enable_sequence_parallel", Rule(Nothing, "true"),
     "with tensor parallelism the sequence is split between matrices"},
    {"parallelism.enable_fsdp_symm_mem", Nothing, "NCCL chooses how weights travel"},
    {"parallelism.spmd_backend", Nothing, "tensors are plain ones"},
    {"parallelism.context_parallel_ptrr_mask_key", Nothing, "the balancer needs no mask"},
    {"parallelism.context_parallel_load_balancer", ToKey, "headtail or none"},
    {"parallelism.pipeline_parallel_expert_parallel_overlap", Nothing, kExperts},
    {"parallelism.expert_parallel_degree", ToKey},
    {"parallelism.expert_tensor_parallel_degree", Rule(Nothing, "0", "1"), kExperts},
    {"parallelism.expert_parallel_comm_backend", Nothing, kExperts},
    {"checkpoint.enable_ft_dataloader_checkpoints", Nothing, "each checkpoint has the place in the data"},
    {"checkpoint.initial_load_path", ToKey,
     "a checkpoint of TorchTitan is read as it is; the place in the data is training.first_sample"},
    {"checkpoint.initial_load_in_hf_quantized", Rule(Nothing, "false"), "safetensors in bfloat16 or float32"},
    {"checkpoint.create_seed_checkpoint", Nothing, "initial weights do not depend on the mesh"},
    {"checkpoint.async_mode", Rule(ToKey, Word{"async_with_pinned_mem", "async"}, kAnyOther),
     "disabled or async"},
    {"checkpoint.interval_type", Rule(Nothing, "steps"), "checkpoint.interval counts steps"},
    {"checkpoint.export_dtype", ToKey, "float16, bfloat16 or float32"},
    {"activation_checkpoint.mode", ToKey,
     "selective recomputes the cheap parts of every layer, full all of it; pretrain --search chooses"},
    {"activation_checkpoint.selective_ac_option", InWords,
     "mode = \"selective\" recomputes the cheap parts of every layer, as \"op\"; a number N recomputes every "
     "Nth layer whole in TorchTitan, which takes other memory and time, with the same results"},
    {"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
     Rule(Nothing, "[]", "[\"moe.router.gate\"]"),
     "activation_checkpoint.mode = \"full\" recomputes every product"},
    {"activation_checkpoint.early_stop", Nothing, "recomputation computes only what is read"},
    {"activation_checkpoint.memory_budget", Nothing, "only mode = \"memory_budget\" reads it"},
    {"activation_checkpoint.visualize_memory_budget_pareto", Rule(Nothing, "false"),
     "pretrain --search prints memory and time of the settings"},
    {"activation_checkpoint.preserve_rng_state", Nothing, "no operation of a layer is random"},
    {"activation_checkpoint.determinism_check", Nothing, kDeterminate},
    {"activation_checkpoint.debug", Nothing, kDeterminate},
    {"compile.enable", Rule(ToKey, Word{"false", ""}, kAnyOther),
     "fused kernels and CUDA graphs stay on: the bits are the same, and nothing is compiled at the start"},
    {"override.imports", Rule(Nothing, "[]"), kNoPython},
    {"loss.", Nothing, "cross entropy over all tokens that count, in pieces of the logits"},
    {"tokenizer.", Nothing, "the tokenizer is that of model.hf_assets_path"},
    {"dataloader.shuffle", ToKey, "over all samples, not within a buffer", "training.shuffle"},
    {"dataloader.", InWords, kTrainingData},
    {"compile.components", Nothing, "model and loss are fused by hand"},
    {"compile.backend", Nothing, "the kernels are compiled with the program"},
    {"quantize.linear.float8.enable",
     Rule(ToKey, Word{"true", "quantize.linear.float8"}, Word{"dynamic", "quantize.linear.float8"},
          Word{"false", ""}, Word{"", ""}, kAnyOther),
     "model.converters = quantize.linear.float8 turns float8 on", "model.converters"},
    {"quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp", Nothing,
     "the scales of all weights are computed together, after the update"},
    {"quantize.linear.float8.force_recompute_fp8_weight_in_bwd", Nothing,
     "it saves memory only; the results do not change"},
    {"quantize.linear.mx.mxfp8_dim1_cast_kernel_choice", Nothing, "there is one kernel for each device"},
    {"quantize.linear.mx.use_fp8_dim1_cast_triton_kernel", Nothing, "there is one kernel for each device"},
    {"quantize.grouped_mm.", Nothing, kExperts},
    {"comm.trace_buf_size", InWords, kFlight},
    {"comm.save_traces_folder", InWords, kFlight},
    {"comm.save_traces_file_prefix", InWords, kFlight},
    {"comm.mode", Rule(Nothing, "default"), kPlan},
    {"memory_estimation.enable", Rule(Nothing, "false"), kPlan},
    {"memory_estimation.disable_fake_mode", Nothing, "pretrain --plan allocates nothing on a GPU"},
    {"fault_tolerance.enable", Rule(Nothing, "false"), kRestart},
    {"fault_tolerance.semi_sync_method", Rule(Nothing, ""),
     "parallelism.data_parallel_replicate_degree sums gradients in every step"},
    {"fault_tolerance.", Nothing, "only fault_tolerance.enable reads it"},
    {"experimental.custom_import", Rule(Nothing, ""), kNoPython},
    {"experimental.custom_args_module", Rule(Nothing, ""), kNoPython},
    {"experimental.custom_model_path", Rule(Nothing, ""), kNoPython},
    {"validation.enable", ToKey,
     "set validation.dataset_path to a token file of held-out texts, then validation.enable = true"},
    {"validation.dataset", InWords, kHeldOut},
    {"validation.dataset_path", ToKey, kValidationData},
    {"validation.steps", ToKey, kValidationSteps},
    {"validation.dataloader.dataset.", InWords, kHeldOut},
    {"validation.dataloader.", Nothing, kReader},
    {"debug.deterministic_warn_only", Nothing, "every operation has a deterministic form"},
    {"debug.enable_structured_logging", Nothing, "metrics.jsonl and ranks.jsonl are always written"},
    {"debug.spmd_typechecking", Nothing, "placements are checked before the first step"},
    {"debug.detect_anomaly", Nothing, "updates that are not finite are skipped and counted in any case"},
    {"debug.batch_invariant", Rule(Nothing, "false"), "debug.deterministic"},
    {"debug.moe_force_load_balance", Nothing, kExperts},
};

constexpr FormerName kFormerNames[] = {
    {"hf_assets_path", "model.hf_assets_path"},
    {"dump_folder", "job.dump_folder"},
    {"profiler.", "profiling."},
    {"validator.", "validation."},
    {"model_spec.name", "model.name"},
    {"model_spec.flavor", "model.flavor"},
    {"model_spec.model.layer.", "model_spec.model.layers."},
    {"model_spec.model.rope.", "model_spec.model.layers.attention.rope."},
    {"debug.print_config", "job.print_config"},
    {"debug.save_config_file", "job.save_config_file"},
    {"compile.enable_async_tensor_parallel", "parallelism.enable_async_tensor_parallel"},
    {"activation_checkpoint.force_recompute_mm_shapes_by_fqns",
     "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"},
    {"training.max_context_length", "training.seq_len"},
    {"training.batch_size", "training.local_batch_size"},
    {"training.warmup_steps", "lr_scheduler.warmup_steps"},
    {"training.compile", "compile.enable"},
    {"training.sequence_parallel_degree", "parallelism.tensor_parallel_degree"},
    {"training.checkpoint_", "checkpoint."},
    {"training.fp8_linear", "float8.enable_float8_linear"},
    {"training.enable_fp8_linear", "float8.enable_float8_linear"},
    {"training.enable_float8_linear", "float8.enable_float8_linear"},
    {"global.dump_folder", "job.dump_folder"},
    {"profiling.run_profiler", "profiling.enable_profiling"},
    {"profiling.profile_every_x_iter", "profiling.profile_freq"},
    {"training.seed", "debug.seed"},
    {"training.deterministic", "debug.deterministic"},
    {"training.data_parallel_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_replicate_degree", "parallelism.data_parallel_replicate_degree"},
    {"training.tensor_parallel_degree", "parallelism.tensor_parallel_degree"},
    {"training.pipeline_parallel_degree", "parallelism.pipeline_parallel_degree"},
    {"training.fsdp_reshard_after_forward", "parallelism.fsdp_reshard_after_forward"},
    {"training.disable_loss_parallel", "parallelism.disable_loss_parallel"},
    {"experimental.enable_", "parallelism.enable_"},
    {"experimental.pipeline_", "parallelism.pipeline_"},
    {"experimental.context_", "parallelism.context_"},
    {"lr_scheduler.lr_min", "lr_scheduler.min_lr_factor"},
    {"checkpoint.enable_checkpoint", "checkpoint.enable"},
    {"checkpoint.model_weights_only", "checkpoint.last_save_model_only"},
    {"checkpoint.last_save_model_weights_only", "checkpoint.last_save_model_only"},
    {"checkpoint.initial_load_model_weights_only", "checkpoint.initial_load_model_only"},
    {"validation.enabled", "validation.enable"},
    {"validation.interval", "validation.freq"},
    {"float8.enable_float8_linear", "quantize.linear.float8.enable"},
    {"float8.", "quantize.linear.float8."},
    {"mx.", "quantize.linear.mx."},
    {"quantize.dense.", "quantize.linear."},
    {"quantize.moe.", "quantize.grouped_mm."},
    {"quantize.linear.fp8.", "quantize.linear.float8."},
};

constexpr const char* kDefault = "TorchTitan's default";

constexpr Implied kImplied[] = {
    {"(model)", "model.name", "llama3", kDefault},
    {"(model)", "model.flavor", "256x6x16", "TorchTitan's default, debugmodel"},
    {"(checkpoints)", "checkpoint.async_mode", "disabled", kDefault},
    {"(last checkpoint)", "checkpoint.last_save_model_only", "true", kDefault},
    {"(last checkpoint)", "checkpoint.export_dtype", "float32", kDefault},
    {"(validation)", "validation.local_batch_size", "8", kDefault},
    // Samples that are longer than those of training would be refused.
    {"(validation)", "validation.seq_len", "2048", kDefault, "training.seq_len"},
    {"(weight decay)", "optimizer.decay_all_parameters", "true", "TorchTitan decays norms too"},
    {"(order of the data)", "training.shuffle", "false",
     "TorchTitan reads its texts in order; true is better for most data"},
};

template <Converter converter>
bool converts(const JobConfig& config, std::string_view) {
    return std::ranges::count(config.model.converters, converter) > 0;
}

bool is_token_file(const JobConfig&, std::string_view value) {
    return value.ends_with(".h5") || value.ends_with(".bin");
}

bool exports_the_last_step(const JobConfig& config, std::string_view) {
    return config.checkpoint.last_save_model_only || config.checkpoint.last_save_in_hf;
}

bool has_held_out_texts(const JobConfig& config, std::string_view enable) {
    return enable != "true" || !config.validation.dataset_path.empty();
}

constexpr Need kNeeds[] = {
    {"training.dataset_path", is_token_file, Fate::Equivalent, "", File},
    {"validation.dataset_path", is_token_file, Fate::Equivalent, "", File},
    {"validation.enable", has_held_out_texts, Fate::Missing, ""},
    {"checkpoint.export_dtype", exports_the_last_step, Fate::Harmless,
     "the last step is saved as it is trained"},
    {"quantize.linear.float8.", converts<Converter::Float8>, Fate::Harmless,
     "model.converters has no quantize.linear.float8"},
    {"quantize.linear.mx.", converts<Converter::Mx>, Fate::Harmless,
     "model.converters has no quantize.linear.mx"},
};

}  // namespace

const ForeignTable& torchtitan_table() {
    static const ForeignTable kTable{
        "TorchTitan", "from-torchtitan", "model_spec.model.", kKeys, kFormerNames, kImplied, kNeeds};
    return kTable;
}

}  // namespace argosy::config
