// Words of PyTorch, DeepSpeed, Megatron and Hugging Face for what keys do here. configs/ARRIVING.md explains
// them.
#include "config/arrival.h"

namespace argosy::config {
namespace {

constexpr const char* kFullShard =
    "FULL_SHARD (FSDP, ZeRO-3) is --parallelism.data_parallel_shard_degree N; gathered weights are freed "
    "after forward, which is the default without a pipeline";
constexpr const char* kGradOp =
    "SHARD_GRAD_OP (ZeRO-2) is --parallelism.data_parallel_shard_degree N with "
    "--parallelism.fsdp_reshard_after_forward never";
constexpr const char* kReplicas =
    "DDP (NO_SHARD, ZeRO-0) is --parallelism.data_parallel_replicate_degree N with "
    "--parallelism.data_parallel_shard_degree 1";
constexpr const char* kHybrid =
    "HYBRID_SHARD (HSDP) is --parallelism.data_parallel_replicate_degree NODES with "
    "--parallelism.data_parallel_shard_degree RANKS_PER_NODE";
constexpr const char* kZero =
    "ZeRO stage 1 or 2 is --parallelism.data_parallel_shard_degree N with "
    "--parallelism.fsdp_reshard_after_forward never, stage 3 without the latter";
constexpr const char* kOffload =
    "nothing is kept on the host: shard over more ranks, or --optimizer.state_dtype bfloat16, or "
    "--activation_checkpoint.mode full; pretrain --search chooses";
constexpr const char* kOverlap = "transfers overlap computation in any case; there is nothing to set";
constexpr const char* kRecompute = "it is --activation_checkpoint.mode selective or full";
constexpr const char* kAccumulation =
    "gradients are accumulated over --training.global_batch_size / (--training.local_batch_size x "
    "data-parallel ranks) microbatches";
constexpr const char* kLocalBatch = "it is --training.local_batch_size, the samples of a rank";
constexpr const char* kPrecision =
    "it is --training.mixed_precision_param bfloat16, with the weights in --training.dtype float32";
constexpr const char* kRanks =
    "the launcher says the ranks: mpirun -n N pretrain ..., or jobs/submit.sh F.toml --nodes N";
constexpr const char* kFsdpStrategy =
    "FSDPStrategy(...) is --parallelism.data_parallel_shard_degree N (-1, the default: all ranks that are "
    "left), DDP data_parallel_replicate_degree N, HYBRID_SHARD both, and SHARD_GRAD_OP needs "
    "fsdp_reshard_after_forward never";
constexpr const char* kDocuments =
    "--training.attend_across_documents false keeps attention within a document and begins positions again "
    "with each";
constexpr const char* kMessages =
    "prepare-data tokenize makes loss masks from records: of {\"messages\"} the assistant's turns count, of "
    "{\"prompt\", \"completion\"} the completion";
constexpr const char* kFloat8 = "it is --model.converters quantize.linear.float8";

constexpr const char* kTensor = "it is --parallelism.tensor_parallel_degree";
constexpr const char* kBiasRate = "it is --moe.bias_update_rate";
constexpr const char* kPipeline = "it is --parallelism.pipeline_parallel_degree";
constexpr const char* kContext = "it is --parallelism.context_parallel_degree";
constexpr const char* kResume =
    "with --checkpoint.enable true the same command resumes from the newest intact checkpoint of "
    "--job.dump_folder; --checkpoint.initial_load_path PATH starts a new run from other weights";
constexpr const char* kWeights =
    "--checkpoint.initial_load_path PATH starts from the weights of a run (TorchTitan's and Megatron's, "
    "too), "
    "a full file, a Hugging Face folder or Meta's files";
constexpr const char* kWandb =
    "jobs/export_run.py --wandb DIR RUN makes a run that wandb sync uploads; --metrics.enable_tensorboard "
    "true writes curves for TensorBoard";
constexpr const char* kTensorBoard = "it is --metrics.enable_tensorboard true";
constexpr const char* kProfile = "it is --profiling.enable_profiling true";
constexpr const char* kBatch =
    "it is --training.local_batch_size, the samples of a rank, or --training.global_batch_size, those of a "
    "step";
constexpr const char* kSteps = "it is --training.steps";
constexpr const char* kEpochs =
    "--training.steps or --training.max_tokens sets the length of a run, which repeats its data as often as "
    "needed";
constexpr const char* kOutput = "it is --job.dump_folder";
constexpr const char* kInterval = "it is --checkpoint.interval N with --checkpoint.enable true";
constexpr const char* kLogging = "it is --metrics.log_freq";
constexpr const char* kValidation =
    "it is --validation.freq N with --validation.enable true and --validation.dataset_path F.h5";
constexpr const char* kData = "it is --training.dataset_path F.h5, a file that prepare-data tokenize makes";
constexpr const char* kClipping = "it is --training.max_norm";
constexpr const char* kWarmup = "it is --lr_scheduler.warmup_steps";
constexpr const char* kDecay = "it is --lr_scheduler.decay_type linear, cosine or sqrt";
constexpr const char* kAttention =
    "attention is fused wherever there is a kernel for it; there is nothing to set";

constexpr ForeignWord kWords[] = {
    // Words that users of any trainer type first
    {"tp", kTensor},
    {"tp_size", kTensor},
    {"tensor_parallel", kTensor},
    {"tensor_parallel_size", kTensor},
    {"pp", kPipeline},
    {"pp_size", kPipeline},
    {"pipeline_parallel_size", kPipeline},
    {"cp", kContext},
    {"cp_size", kContext},
    {"dp",
     "--parallelism.data_parallel_shard_degree N shards the model (FSDP), "
     "--parallelism.data_parallel_replicate_degree N copies it (DDP)"},
    {"resume", kResume},
    {"auto_resume", kResume},
    {"resume_from", kResume},
    {"resume_from_checkpoint", kResume},
    {"load", kWeights},
    {"init_from", kWeights},
    {"model_name_or_path", kWeights},
    {"wandb", kWandb},
    {"use_wandb", kWandb},
    {"wandb_project", kWandb},
    {"tensorboard", kTensorBoard},
    {"tensorboard_dir", kTensorBoard},
    {"profile", kProfile},
    {"profiler", kProfile},
    {"batch_size", kBatch},
    {"max_steps", kSteps},
    {"num_steps", kSteps},
    {"train_steps", kSteps},
    {"epochs", kEpochs},
    {"num_epochs", kEpochs},
    {"num_train_epochs", kEpochs},
    {"learning_rate", "it is --optimizer.lr"},
    {"min_lr", "it is --lr_scheduler.min_lr_factor, a share of --optimizer.lr"},
    {"warmup", kWarmup},
    {"num_warmup_steps", kWarmup},
    {"lr_warmup_iters", kWarmup},
    {"warmup_ratio", "it is --lr_scheduler.warmup_steps, a number of steps"},
    {"lr_scheduler_type", kDecay},
    {"lr_decay_style", kDecay},
    {"grad_clip", kClipping},
    {"clip_grad", kClipping},
    {"max_grad_norm", kClipping},
    {"output_dir", kOutput},
    {"out_dir", kOutput},
    {"save", kOutput},
    {"save_dir", kOutput},
    {"save_interval", kInterval},
    {"save_steps", kInterval},
    {"log_interval", kLogging},
    {"logging_steps", kLogging},
    {"eval_interval", kValidation},
    {"eval_steps", kValidation},
    {"data_path", kData},
    {"train_data", kData},
    {"train_data_path", kData},
    {"max_seq_len", "it is --training.seq_len"},
    {"block_size", "it is --training.seq_len"},
    {"context_length", "it is --training.seq_len"},
    {"flash_attention", kAttention},
    {"use_flash_attn", kAttention},
    {"attn_implementation", kAttention},
    {"dry_run", "--plan runs a step without data and says whether the run fits"},
    // PyTorch's FSDP and DDP
    {"full_shard", kFullShard},
    {"fsdp", kFullShard},
    {"fsdp2", kFullShard},
    {"fully_shard", kFullShard},
    {"shard_grad_op", kGradOp},
    {"no_shard", kReplicas},
    {"ddp", kReplicas},
    {"hybrid_shard", kHybrid},
    {"hsdp", kHybrid},
    {"sharding_strategy",
     "FULL_SHARD is --parallelism.data_parallel_shard_degree N, NO_SHARD data_parallel_replicate_degree N, "
     "HYBRID_SHARD both, and SHARD_GRAD_OP needs fsdp_reshard_after_forward never"},
    {"reshard_after_forward", "it is --parallelism.fsdp_reshard_after_forward default, always or never"},
    {"auto_wrap_policy", "embedding, each layer and head are gathered on their own; there is nothing to set"},
    {"state_dict_type",
     "a checkpoint is sharded and shows whole tensors to any HDF5 tool; convert-checkpoint SRC DST --to full "
     "or hf writes one file"},
    {"use_orig_params", "each parameter is cut on its own, so there are no flat parameters"},
    {"sync_module_states", "initial weights are the same on every mesh without being sent"},
    {"backward_prefetch", kOverlap},
    {"forward_prefetch", kOverlap},
    {"limit_all_gathers", kOverlap},
    {"bucket_cap_mb", kOverlap},
    {"cpu_offload", kOffload},
    {"mixed_precision", kPrecision},
    {"devices", kRanks},
    {"num_nodes", kRanks},
    {"strategy", kFsdpStrategy},
    {"precision",
     "bf16-mixed is the default, also in place of 16-mixed; bf16-true is --training.dtype bfloat16; 32-true "
     "is --training.mixed_precision_param float32"},
    {"nproc_per_node", kRanks},
    {"nnodes", kRanks},
    // DeepSpeed
    {"zero_stage", kZero},
    {"zero_optimization", kZero},
    {"offload_optimizer", kOffload},
    {"offload_param", kOffload},
    {"overlap_comm", kOverlap},
    {"reduce_bucket_size", kOverlap},
    {"train_batch_size", "it is --training.global_batch_size, the samples of a step"},
    {"train_micro_batch_size_per_gpu", kLocalBatch},
    {"gradient_accumulation_steps", kAccumulation},
    {"gradient_clipping", kClipping},
    // Megatron
    {"tensor_model_parallel_size", kTensor},
    {"pipeline_model_parallel_size", kPipeline},
    {"expert_model_parallel_size", "it is --parallelism.expert_parallel_degree"},
    {"moe_aux_loss_coeff", "the nearest are --moe.step_loss and --moe.sequence_loss (configs/EXPERTS.md)"},
    {"moe_router_bias_update_rate", kBiasRate},
    {"load_balance_coeff", kBiasRate},
    {"context_parallel_size", kContext},
    {"tp_comm_overlap", "it is --parallelism.enable_async_tensor_parallel true, false or auto"},
    {"sequence_parallel",
     "the sequence is split between matrices whenever --parallelism.tensor_parallel_degree > 1"},
    {"num_layers_per_virtual_pipeline_stage",
     "it is --parallelism.pipeline_parallel_schedule Interleaved1F1B with "
     "--parallelism.pipeline_parallel_layers_per_stage"},
    {"use_distributed_optimizer",
     "--parallelism.data_parallel_shard_degree shards moments, gradients and weights"},
    {"recompute_granularity", kRecompute},
    {"gradient_checkpointing", kRecompute},
    {"micro_batch_size", kLocalBatch},
    {"per_device_train_batch_size", kLocalBatch},
    {"train_iters", kSteps},
    {"eod_mask_loss",
     "it is --training.count_document_starts false: the token after an end of document does not count"},
    {"reset_attention_mask", kDocuments},
    {"reset_position_ids", kDocuments},
    {"sft", kMessages},
    {"bf16", kPrecision},
    {"fp16", "no run computes in float16; nearest: --training.mixed_precision_param bfloat16, the default"},
    {"fp8_format", kFloat8},
    // TRL and Axolotl
    {"assistant_only_loss", kMessages},
    {"completion_only_loss", kMessages},
    {"roles_to_train", kMessages},
    {"train_on_inputs", kMessages},
};

}  // namespace

std::span<const ForeignWord> foreign_words() { return kWords; }

}  // namespace argosy::config
