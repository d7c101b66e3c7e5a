// The table of all keys of the configuration (schema.h). A new key takes one member in job_config.h and one
// line here.
#include "config/binding.h"

namespace argosy::config {
namespace {

std::vector<Section> make_schema() {
    using enum Precision;
    return {
        section("job", &JobConfig::job, "the run itself",
                {key("dump_folder", &Job::dump_folder, any(), "Folder for all files that the run writes."),
                 key("description", &Job::description, any(), "A description of the run, for people.")}),
        section(
            "model", &JobConfig::model, "the architecture: a preset, or a Hugging Face folder's config.json",
            {key("name", &Model::name, any(),
                 "Family of the preset, such as llama3 or qwen3; see configs/README.md. Default without "
                 "hf_assets_path.",
                 Model::kDefaultName),
             key("flavor", &Model::flavor, any(),
                 "Size of the preset; see configs/README.md. The default applies only without "
                 "hf_assets_path.",
                 Model::kDefaultFlavor),
             key("hf_assets_path", &Model::hf_assets_path, any(),
                 "Hugging Face folder: config.json (a preset, if given too, must agree), tokenizer, or both."),
             key("accept_config_keys", &Model::accept_config_keys, any(),
                 "Keys of a config.json that are unknown to this program and do not change the model; others "
                 "are refused."),
             key("converters", &Model::converters, any(),
                 "Matrix products that cast their operands to eight bits; the section of that name says "
                 "how.")}),
        section("optimizer", &JobConfig::optimizer, "the optimizer and its constants",
                {key("name", &Optimizer::name, any(),
                     "Name of the optimizer; Muon is for the matrices of layers, and AdamW for all else."),
                 key("lr", &Optimizer::lr, at_least(0), "Peak learning rate, reached after the warm-up."),
                 key("beta1", &Optimizer::beta1, within_below(0, 1),
                     "Decay rate of the first moment, the running mean of the gradient."),
                 key("beta2", &Optimizer::beta2, within_below(0, 1),
                     "Decay rate of the second moment, the running mean of the squared gradient."),
                 key("eps", &Optimizer::eps, above(0),
                     "Number added to the square root of the second moment, against division by zero."),
                 key("weight_decay", &Optimizer::weight_decay, at_least(0),
                     "Decoupled weight decay: each update shrinks weights by learning rate x weight_decay."),
                 key("decay_all_parameters", &Optimizer::decay_all_parameters, any(),
                     "Decay norms and biases too; false: decay matrices only."),
                 key("state_dtype", &Optimizer::state_dtype, among({BFloat16, Float32, Float64}),
                     "Type of the moments; bfloat16: rounded stochastically; float64: only with "
                     "training.dtype float64.",
                     "float32 or wider"),
                 key("groups", &Optimizer::groups, at_least(0),
                     "Factors of lr, or own weight_decay, by a part of names; the first that fits counts. "
                     "[[optimizer.groups]]"),
                 key("qk_clip", &Optimizer::qk_clip, at_least(20),
                     "Limit of the largest attention score: an update after larger ones shrinks wq and wk "
                     "(MuonClip: 100).",
                     "no limit"),
                 key("muon_momentum", &Optimizer::muon_momentum, within_below(0, 1),
                     "Muon: decay rate of the running mean of the gradient."),
                 key("muon_nesterov", &Optimizer::muon_nesterov, any(),
                     "Muon: step along the momentum plus the gradient, as if one update ahead."),
                 key("muon_ns_steps", &Optimizer::muon_ns_steps, within(1, 100),
                     "Muon: number of Newton-Schulz steps, which make a matrix orthogonal."),
                 key("muon_adjust_lr", &Optimizer::muon_adjust_lr, any(),
                     "Muon: factor of lr by a matrix's sizes (configs/OPTIMIZERS.md); the default fits AdamW's "
                     "lr."),
                 key("muon_ns_dtype", &Optimizer::muon_ns_dtype, among({BFloat16, Float32}),
                     "Muon: type of its steps, also between ranks. A float64 run computes them in float64.",
                     "bfloat16"),
                 key("muon_split", &Optimizer::muon_split, any(),
                     "Muon: what is one matrix of wq, wk and wv: the projection, or each head of it."),
                 key("muon_routers", &Optimizer::muon_routers, any(),
                     "Muon: take the matrices of routers of experts, too; false: AdamW takes them.")}),
        section(
            "lr_scheduler", &JobConfig::lr_scheduler,
            "the learning rate over the steps: warm-up, plateau, decay",
            {key("warmup_steps", &LrScheduler::warmup_steps, at_least(0),
                 "Number of steps in which the learning rate rises linearly; the last of them has "
                 "optimizer.lr."),
             key("total_steps", &LrScheduler::total_steps, at_least(1),
                 "Last step of the decay; the steps after it have the decay's lowest rate. Unset: the run's "
                 "last step.",
                 "the run's steps"),
             key("decay_ratio", &LrScheduler::decay_ratio, within(0, 1),
                 "Share of total_steps, at the end, in which the learning rate decays; 0: constant after the "
                 "warm-up.",
                 "after the warm-up"),
             key("decay_type", &LrScheduler::decay_type, any(),
                 "Shape of the decay; sqrt: 1 minus the square root of the part of the decay that is done."),
             key("min_lr_factor", &LrScheduler::min_lr_factor, within(0, 1),
                 "Lowest rate: the decay approaches it, and steps after the decay have it; a share of "
                 "optimizer.lr.")}),
        section(
            "training", &JobConfig::training, "data, batches, length and number types",
            {key("dataset_path", &Training::dataset_path, any(),
                 "Token files: a .h5 of `prepare-data tokenize`, a .bin of Megatron, a folder, or a pattern "
                 "as d/*.h5."),
             key("verify_dataset", &Training::verify_dataset, any(),
                 "Verify the checksum of each 16 MiB that a rank first reads from (limits: "
                 "lib/files/data/FORMAT.md)."),
             key("local_batch_size", &Training::local_batch_size, size(),
                 "Samples per data-parallel rank in one forward and backward pass."),
             key("global_batch_size", &Training::global_batch_size, minus_one_or_size(),
                 "Samples per step over all ranks, by accumulation; -1: local_batch_size x data-parallel "
                 "ranks."),
             key("seq_len", &Training::seq_len, size(), "Tokens per sample."),
             key("max_norm", &Training::max_norm, above_or_infinite(0),
                 "Gradient clipping: a larger norm over all ranks scales gradients by max_norm / (norm + "
                 "1e-6); inf: none."),
             key("steps", &Training::steps, at_least(1),
                 "Optimizer steps of the run; max_tokens and max_time may end it sooner."),
             key("max_tokens", &Training::max_tokens, at_least(1),
                 "Tokens over all ranks after which the run ends, rounded up to a whole step.", "no limit"),
             key("max_time", &Training::max_time, above(0),
                 "Wall time of the run since this start; the run ends normally before a step that would "
                 "exceed it.",
                 "no limit"),
             key("shuffle", &Training::shuffle, any(),
                 "Random order of samples, another one in each epoch; false: the order of the file."),
             key("first_sample", &Training::first_sample, within(0, 1e10),
                 "Samples to pass over where a run begins without a place in the data; a resumed run has one."),
             key("attend_across_documents", &Training::attend_across_documents, any(),
                 "false: attention stays within a document, and positions begin again with each document."),
             key("count_document_starts", &Training::count_document_starts, any(),
                 "false: a document's first token, which nothing predicts, does not count (Megatron's eod_mask_loss)."),
             key("dtype", &Training::dtype, among({BFloat16, Float32, Float64}),
                 "Type of the weights that the optimizer updates; bfloat16: rounded stochastically, no "
                 "float32 copy."),
             key("mixed_precision_param", &Training::mixed_precision_param,
                 among({BFloat16, Float32, Float64}),
                 "Type of computation, activations and gathered weights."),
             key("mixed_precision_reduce", &Training::mixed_precision_reduce, among({Float32, Float64}),
                 "Type in which gradients are summed over ranks; float64: only with dtype float64."),
             key("gradient_accumulation_dtype", &Training::gradient_accumulation_dtype,
                 among({BFloat16, Float32}),
                 "Type of gradients, summed over microbatches and kept until the update; bfloat16: rounded "
                 "stochastically.",
                 "float32 or wider"),
             key("max_nonfinite_steps", &Training::max_nonfinite_steps, at_least(1),
                 "Consecutive steps with infinite or NaN loss or gradient norm that end the run; each is "
                 "skipped.")}),
        section("data", &JobConfig::data, "a mixture of several sources, in place of training.dataset_path",
                {key("mixture", &Data::mixture, above(0),
                     "Sources in the proportions of their weights; paths as training.dataset_path; in a file "
                     "[[data.mixture]].")}),
        section(
            "validation", &JobConfig::validation,
            "the loss of held-out samples, measured during training by its forward pass",
            {key("enable", &Validation::enable, any(), "Validate every freq steps and after the last one."),
             key("dataset_path", &Validation::dataset_path, any(),
                 "Token files, as training.dataset_path; their order is kept, and each sample counts once."),
             key("freq", &Validation::freq, at_least(1), "Steps between two validations."),
             key("steps", &Validation::steps, minus_one_or_at_least(1),
                 "steps x local_batch_size samples of the job are validated, on any mesh; -1: the whole "
                 "set."),
             key("local_batch_size", &Validation::local_batch_size, size(),
                 "Samples per data-parallel rank in a batch, a multiple of those in a microbatch of "
                 "training.",
                 "as training"),
             key("seq_len", &Validation::seq_len, size(), "Tokens per sample, at most training.seq_len.",
                 "as training")}),
        section(
            "evaluation", &JobConfig::evaluation,
            "tasks evaluated during training, as by eval, in windows of at most training.seq_len "
            "tokens",
            {key("tasks", &Evaluation::tasks, any(),
                 "JSONL files, each as eval's --tasks: [READER=]FILE; none: no evaluation."),
             key("freq", &Evaluation::freq, at_least(1),
                 "Steps between two evaluations; there is one after the last step, too."),
             key("tokenizer", &Evaluation::tokenizer, any(),
                 "tokenizer.json, a folder with one, or bytes; unset: that of model.hf_assets_path."),
             key("num_fewshot", &Evaluation::num_fewshot, at_least(0),
                 "Examples before each question, from fewshot_file."),
             key("fewshot_file", &Evaluation::fewshot_file, any(),
                 "JSONL file with records like the tasks'."),
             key("limit", &Evaluation::limit, at_least(0), "Maximum number of records of a task; 0: all.")}),
        section("loss_spike", &JobConfig::loss_spike,
                "outlier steps, whose updates are skipped; skipped_updates.jsonl in dump_folder lists them",
                {key("loss_zscore", &LossSpike::loss_zscore, above(0),
                     "Skip an update if its loss is this many standard deviations above the window's mean.",
                     "off"),
                 key("grad_norm_zscore", &LossSpike::grad_norm_zscore, above(0),
                     "Skip an update if its gradient norm (unclipped) is this many standard deviations above "
                     "the mean.",
                     "off"),
                 key("window", &LossSpike::window, at_least(2),
                     "Number of newest updates that mean and deviation cover; skipped steps do not count."),
                 key("warmup_steps", &LossSpike::warmup_steps, at_least(2),
                     "Number of updates that the window must hold before steps are skipped."),
                 key("max_skipped_steps", &LossSpike::max_skipped_steps, at_least(1),
                     "Consecutive skipped steps that end the run.")}),
        section(
            "parallelism", &JobConfig::parallelism,
            "degrees of parallelism; their product is the number of ranks",
            {key("data_parallel_replicate_degree", &Parallelism::data_parallel_replicate_degree, at_least(1),
                 "Number of copies of the model (DDP), or of the sharded model (HSDP)."),
             key("data_parallel_shard_degree", &Parallelism::data_parallel_shard_degree,
                 minus_one_or_at_least(1),
                 "Ranks that shard parameters, gradients and moments (FSDP); -1: all ranks left by the other "
                 "degrees."),
             key("fsdp_reshard_after_forward", &Parallelism::fsdp_reshard_after_forward, any(),
                 "Free gathered parameters after forward and gather them again; default: not with a "
                 "pipeline."),
             key("tensor_parallel_degree", &Parallelism::tensor_parallel_degree, at_least(1),
                 "Ranks that split each matrix, and between matrices the sequence; should be within a node."),
             key("enable_async_tensor_parallel", &Parallelism::enable_async_tensor_parallel, any(),
                 "Overlap tensor-parallel products with their transfers, part by part; auto: if the plan "
                 "gains by it."),
             key("disable_loss_parallel", &Parallelism::disable_loss_parallel, any(),
                 "Each tensor-parallel rank gathers all logits for the loss: slower, and takes more memory."),
             key("context_parallel_degree", &Parallelism::context_parallel_degree, at_least(1),
                 "Ranks that each hold a part of every sequence, and shard the parameters, too."),
             key("context_parallel_rotate_method", &Parallelism::context_parallel_rotate_method, any(),
                 "How attention gets other ranks' keys: all at once, or around a ring (alltoall: the same)."),
             key("context_parallel_load_balancer", &Parallelism::context_parallel_load_balancer, any(),
                 "headtail: a rank has a chunk of each half of a sequence, for equal work; none: one chunk."),
             key("expert_parallel_degree", &Parallelism::expert_parallel_degree, at_least(1),
                 "Ranks that divide the experts of a layer: 1, tp, cp x tp, or that x a divisor of dp_shard."),
             key("pipeline_parallel_degree", &Parallelism::pipeline_parallel_degree, at_least(1),
                 "Ranks that split the layers into a pipeline of stages; a rank runs one stage or several."),
             key("pipeline_parallel_schedule", &Parallelism::pipeline_parallel_schedule, any(),
                 "Order of actions; 1F1B, GPipe: a stage per rank; ZeroBubble: weight gradients fill waits."),
             key("pipeline_parallel_schedule_csv", &Parallelism::pipeline_parallel_schedule_csv, any(),
                 "CSV file with a schedule that replaces the named one: a row for each rank, cells as 2F0."),
             key("pipeline_parallel_microbatch_size", &Parallelism::pipeline_parallel_microbatch_size, size(),
                 "Samples per microbatch of the pipeline; local_batch_size must be a multiple."),
             key("pipeline_parallel_first_stage_less_layers",
                 &Parallelism::pipeline_parallel_first_stage_less_layers, at_least(0),
                 "How many fewer layers the first stage has, because it also has the embedding."),
             key("pipeline_parallel_last_stage_less_layers",
                 &Parallelism::pipeline_parallel_last_stage_less_layers, at_least(0),
                 "How many fewer layers the last stage has, because it also has the head."),
             key("pipeline_parallel_layers_per_stage", &Parallelism::pipeline_parallel_layers_per_stage,
                 within(0, std::numeric_limits<int>::max()),
                 "Layers of each stage, or of every stage (one number); empty: equal, adjusted by the two "
                 "keys above.")}),
        section("moe", &JobConfig::moe, "experts, and how they are balanced (configs/EXPERTS.md)",
                {key("bias_update_rate", &Moe::bias_update_rate, at_least(0),
                     "After each update the bias of an expert in the choice moves by this towards the mean load "
                     "(0.001)."),
                 key("sequence_loss", &Moe::sequence_loss, at_least(0),
                     "Coefficient of the loss of unequal loads within each sequence, such as 0.0001."),
                 key("step_loss", &Moe::step_loss, at_least(0),
                     "Coefficient of the loss of loads unequal in the last step over the whole job, such as 0.001."),
                 key("z_loss", &Moe::z_loss, at_least(0),
                     "Coefficient of the mean square of the log-sum-exp of a router's logits, such as 0.001."),
                 key("force_balance", &Moe::force_balance, any(),
                     "For benchmarks: experts take turns, whatever the router says. Every line of the log says so."),
                 key("planned_imbalance", &Moe::planned_imbalance, at_least(1),
                     "Plans: tokens at the experts of the fullest rank, over an equal share. Runs do not use "
                     "it.")}),
        section(
            "checkpoint", &JobConfig::checkpoint,
            "saving and resuming, and initial weights; lib/files/checkpoint/FORMAT.md specifies the files",
            {key("enable", &Checkpoint::enable, any(),
                 "Save every interval steps, at the last step and on a signal (exit 75); resume from saved "
                 "steps."),
             key("folder", &Checkpoint::folder, any(),
                 "Folder of the saved steps; a relative path is relative to job.dump_folder."),
             key("interval", &Checkpoint::interval, at_least(1),
                 "Steps between two saves. A killed run loses at most these and those trained during its "
                 "last save."),
             key("keep_latest_k", &Checkpoint::keep_latest_k, at_least(0),
                 "Number of newest saved steps to keep, 2 or more; 0: keep all."),
             key("keep_every", &Checkpoint::keep_every, at_least(1),
                 "Always keep saved steps whose number is a multiple of this; must be a multiple of "
                 "interval.",
                 "none"),
             key("async_mode", &Checkpoint::async_mode, any(),
                 "async: training waits only for a copy to host memory; disabled: training waits for the "
                 "files."),
             key("enable_first_step_checkpoint", &Checkpoint::enable_first_step_checkpoint, any(),
                 "Also save step 1, to test saving early."),
             key("last_save_model_only", &Checkpoint::last_save_model_only, any(),
                 "Save only the weights at the last step; a longer run then cannot resume from it."),
             key("last_save_in_hf", &Checkpoint::last_save_in_hf, any(),
                 "Also write the last step as a Hugging Face folder, step-N-hf beside step-N."),
             key("export_dtype", &Checkpoint::export_dtype, among({Float16, BFloat16, Float32}),
                 "Type of the weights that last_save_model_only and last_save_in_hf write.", "as trained"),
             key("load_step", &Checkpoint::load_step, minus_one_or_at_least(1),
                 "Step to resume from; -1: the newest intact step. Later steps are renamed to step-N.aside."),
             key("load_only", &Checkpoint::load_only, any(), "Resume from saved steps, but do not save."),
             key("verify_on_load", &Checkpoint::verify_on_load, any(),
                 "Verify the checksums of the whole step; false: find only missing, truncated or "
                 "foreign files."),
             key("exclude_from_loading", &Checkpoint::exclude_from_loading, any(),
                 "Parts to reset: optimizer (its states), dataloader (position), train_state (step, tokens)."),
             key("initial_load_path", &Checkpoint::initial_load_path, any(),
                 "Start from a run (newest intact step), step, file, folder of Hugging Face, TorchTitan, "
                 "Megatron, Meta."),
             key("initial_load_model_only", &Checkpoint::initial_load_model_only, any(),
                 "Load only weights from initial_load_path; false: load the whole state and continue at its "
                 "step."),
             key("initial_load_in_hf", &Checkpoint::initial_load_in_hf, any(),
                 "Require initial_load_path to be a Hugging Face folder; if it is unset, load "
                 "model.hf_assets_path.")}),
        section("activation_checkpoint", &JobConfig::activation_checkpoint,
                "activation checkpointing, which saves memory and costs time",
                {key("mode", &ActivationCheckpoint::mode, any(),
                     "none: keep all activations; selective: recompute the cheap ones of a layer; full: "
                     "whole layers.")}),
        section(
            "quantize.linear.float8", &JobConfig::float8,
            "products of float8 matrices, with model.converters quantize.linear.float8",
            {key("recipe_name", &Float8::recipe_name, any(),
                 "Numbers with one scale: a matrix, a row, or 128 (blockwise); _gw_hp: weights' "
                 "gradients not cast.",
                 name_of(Float8().recipe()).data()),
             key("filter_fqns", &Float8::filter_fqns, any(),
                 "Layers not cast: parts of names (layers.0.attention.wo); auto_filter_small_kn: too narrow "
                 "ones."),
             key("enable_fsdp_float8_all_gather", &Float8::enable_fsdp_float8_all_gather, any(),
                 "Cast the optimizer's weights after each update, and keep and gather them in float8; for "
                 "tensorwise."),
             key("emulate", &Float8::emulate, any(),
                 "Emulate products in bfloat16 on every device, also on a GPU that multiplies float8.")}),
        section("quantize.linear.mx", &JobConfig::mx,
                "products of MXFP8 matrices, with model.converters quantize.linear.mx",
                {key("recipe_name", &Mx::recipe_name, any(),
                     "Scale of 32 numbers: the largest's power of two; _rceil: such that none is too large.",
                     name_of(Mx().recipe()).data()),
                 key("filter_fqns", &Mx::filter_fqns, any(),
                     "Layers that are not cast: those whose name has one of these parts.")}),
        section("compile", &JobConfig::compile, "kernels and CUDA graphs",
                {key("enable", &Compile::enable, any(),
                     "Use fused kernels and CUDA graphs; false: separate kernels and no graphs, with the "
                     "same bits."),
                 key("graphs", &Compile::graphs, any(),
                     "GPUs: record forward and backward as CUDA graphs; auto: one node, no experts, "
                     "no pipeline, no old NCCL."),
                 key("masked_attention", &Compile::masked_attention, any(),
                     "GPUs: what computes attention of documents, windows and context parallelism (cudnn: untried).")}),
        section(
            "metrics", &JobConfig::metrics, "progress and metrics",
            {key("log_freq", &Metrics::log_freq, at_least(1), "Steps between two log lines."),
             key("layer_grad_norms", &Metrics::layer_grad_norms, any(),
                 "Also write the gradient norms of the embedding, each layer and the head to metrics.jsonl."),
             key("measure_gemm_peak", &Metrics::measure_gemm_peak, any(),
                 "Measure and log the peak of matrix products; MFU uses it for a device without a known "
                 "datasheet."),
             key("enable_tensorboard", &Metrics::enable_tensorboard, any(),
                 "Write TensorBoard event files, with one point every log_freq steps."),
             key("save_tb_folder", &Metrics::save_tb_folder, any(),
                 "Folder of the event files, relative to job.dump_folder."),
             key("baseline", &Metrics::baseline, any(),
                 "metrics.jsonl or dump folder of an earlier run; code 3 if this run is slower by more than "
                 "noise.")}),
        section("profiling", &JobConfig::profiling, "traces of what each rank does and when",
                {key("enable_profiling", &Profiling::enable_profiling, any(),
                     "Every profile_freq steps each rank writes a trace, which jobs/merge_traces.py merges."),
                 key("save_traces_folder", &Profiling::save_traces_folder, any(),
                     "Folder of the traces, relative to job.dump_folder."),
                 key("profile_freq", &Profiling::profile_freq, at_least(1), "Steps between two traces.")}),
        section("comm", &JobConfig::comm, "communication between ranks",
                {key("init_timeout_seconds", &Comm::init_timeout_seconds, at_least(1),
                     "Seconds that waits for other ranks may take until step 1 has ended; MPI's start: "
                     "ARGOSY_START_SECONDS."),
                 key("train_timeout_seconds", &Comm::train_timeout_seconds, at_least(1),
                     "Seconds that waits for other ranks may take after the first step before the run ends "
                     "and names them."),
                 key("storage_timeout_seconds", &Comm::storage_timeout_seconds, at_least(1),
                     "Seconds that reading or writing may stand still before the run ends; no rank counts as "
                     "missing for it."),
                 key("shared_memory", &Comm::shared_memory, any(),
                     "Exchange tensors between ranks of a node through shared memory; false: through MPI."),
                 key("shared_memory_mib", &Comm::shared_memory_mib, size(),
                     "Maximum MiB of shared memory per rank and group of ranks; a rank uses as much as is in "
                     "flight."),
                 key("gpu_path", &Comm::gpu_path, any(),
                     "Data between GPUs; nccl: the run ends if there is no GPU."),
                 key("collective_channels", &Comm::collective_channels, at_least(0),
                     "Maximum SMs of each NCCL communicator for collectives, such as 16, in fours; 0: NCCL chooses."),
                 key("message_channels", &Comm::message_channels, at_least(0),
                     "The same for messages between stages or neighbours of a ring: a power of two, such as 2."),
                 key("products_leave_channels", &Comm::products_leave_channels, any(),
                     "Choose products for the SMs that channels under way leave (untried)."),
                 key("registered_memory", &Comm::registered_memory, any(),
                     "Gather with copy engines and add in switches, in memory registered with NCCL 2.28 (untried)."),
                 key("peer_copies", &Comm::peer_copies, any(),
                     "Async tensor parallelism on a node exchanges by copy engines, not NCCL; no graphs (untried).")}),
        section(
            "debug", &JobConfig::debug, "repeatable runs, finding faults",
            {key("seed", &Debug::seed, at_least(0),
                 "Seed of initial weights, of the order of samples and of stochastic rounding."),
             key("deterministic", &Debug::deterministic, any(),
                 "Repeat losses and weights bit for bit, given the same ranks, threads, CPUs, GPUs, NCCL and "
                 "build."),
             key("plain_operations", &Debug::plain_operations, any(),
                 "Compute with LibTorch's operations, for comparison: slower, with more memory and other "
                 "rounding.")}),
    };
}

}  // namespace

const std::vector<Section>& schema() {
    static const std::vector<Section> table = make_schema();
    return table;
}

}  // namespace argosy::config
