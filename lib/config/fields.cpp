// The table itself. A new key is one member in job_config.h and one line here.
#include "config/binding.h"

namespace argosy::config {
namespace {

std::vector<Section> make_schema() {
    using enum Precision;
    return {
        section(
            "job", &JobConfig::job, "the run as such",
            {key("dump_folder", &Job::dump_folder, any(), "Folder that everything the run writes goes to."),
             key("description", &Job::description, any(), "A line about the run, for people.")}),
        section("model", &JobConfig::model, "the architecture: a preset, or that of a Hugging Face folder",
                {key("name", &Model::name, any(),
                     "Family of the preset: llama3, qwen2 or qwen3. Without hf_assets_path the default.",
                     Model::kDefaultName),
                 key("flavor", &Model::flavor, any(),
                     "Size of the preset; see configs/README.md. Without hf_assets_path the default.",
                     Model::kDefaultFlavor),
                 key("hf_assets_path", &Model::hf_assets_path, any(),
                     "Hugging Face folder: its config.json is the architecture. A preset given too must "
                     "agree.")}),
        section("optimizer", &JobConfig::optimizer, "how a gradient becomes an update",
                {key("name", &Optimizer::name, any(), "The optimizer."),
                 key("lr", &Optimizer::lr, at_least(0), "Learning rate at its peak, after the warm-up."),
                 key("beta1", &Optimizer::beta1, within_below(0, 1), "Decay of the gradient's running mean."),
                 key("beta2", &Optimizer::beta2, within_below(0, 1),
                     "Decay of the squared gradient's running mean."),
                 key("eps", &Optimizer::eps, above(0), "Added to the root of the squared gradient's mean."),
                 key("weight_decay", &Optimizer::weight_decay, at_least(0),
                     "Decoupled weight decay, times the rate."),
                 key("decay_all_parameters", &Optimizer::decay_all_parameters, any(),
                     "Decay norms and biases too; false decays matrices only."),
                 key("state_dtype", &Optimizer::state_dtype, among({BFloat16, Float32, Float64}),
                     "Running means; bfloat16 is rounded stochastically; float64 (also unset) goes with "
                     "training.dtype.",
                     "float32 or wider")}),
        section(
            "lr_scheduler", &JobConfig::lr_scheduler,
            "the learning rate over the steps: warm-up, plateau, decay",
            {key("warmup_steps", &LrScheduler::warmup_steps, at_least(0),
                 "Steps of linear rise to optimizer.lr."),
             key("total_steps", &LrScheduler::total_steps, at_least(1), "Step at which the decay ends.",
                 "the run's steps"),
             key("decay_ratio", &LrScheduler::decay_ratio, within(0, 1),
                 "Last part of total_steps that decays; 0: constant after the warm-up.", "after the warm-up"),
             key("decay_type", &LrScheduler::decay_type, any(), "Shape of the decay."),
             key("min_lr_factor", &LrScheduler::min_lr_factor, within(0, 1),
                 "Where the decay ends, as a part of optimizer.lr.")}),
        section(
            "training", &JobConfig::training, "data, batches, length and number types",
            {key("dataset_path", &Training::dataset_path, any(), "Token file that prepare-data wrote."),
             key("local_batch_size", &Training::local_batch_size, size(),
                 "Samples that a data-parallel rank takes at once."),
             key("global_batch_size", &Training::global_batch_size, minus_one_or_size(),
                 "Samples of one step over all ranks, by accumulation; -1: local_batch_size on every rank, "
                 "once."),
             key("seq_len", &Training::seq_len, size(), "Tokens of a sample."),
             key("max_norm", &Training::max_norm, above_or_infinite(0),
                 "Gradients of a larger norm over the whole job are scaled down to it; inf: never."),
             key("steps", &Training::steps, at_least(1),
                 "Optimizer steps of the run; max_tokens and max_time may end it sooner."),
             key("max_tokens", &Training::max_tokens, at_least(1),
                 "Tokens of all ranks after which the run ends, rounded up to a whole step.", "no limit"),
             key("max_time", &Training::max_time, above(0),
                 "Wall time of the run: it ends, in order, before a step that would not fit.", "no limit"),
             key("shuffle", &Training::shuffle, any(),
                 "Random order of samples, new each epoch; false: file order."),
             key("dtype", &Training::dtype, among({BFloat16, Float32, Float64}),
                 "Weights that the optimizer updates; bfloat16: no wider copy, stochastic rounding."),
             key("mixed_precision_param", &Training::mixed_precision_param, any(),
                 "Compute, activations and gathered weights; float16: with dynamic loss scaling."),
             key("mixed_precision_reduce", &Training::mixed_precision_reduce, among({Float32, Float64}),
                 "Sums of gradients, over ranks and microbatches; float64 goes with dtype float64 only."),
             key("loss_scale_init", &Training::loss_scale_init, at_least(1),
                 "Loss scale that float16 begins with, a power of two; unset: the one below 8 x tokens of a "
                 "step.",
                 "by tokens a step"),
             key("loss_scale_growth_interval", &Training::loss_scale_growth_interval, at_least(1),
                 "Steps in a row without overflow after which the loss scale of float16 doubles.", "2000"),
             key("max_nonfinite_steps", &Training::max_nonfinite_steps, at_least(1),
                 "Steps in a row with infinite or NaN loss or norm that stop the run; each one is "
                 "skipped.")}),
        section(
            "loss_spike", &JobConfig::loss_spike,
            "updates skipped for what stands out; skipped_updates.jsonl in dump_folder names their samples",
            {key("loss_zscore", &LossSpike::loss_zscore, above(0),
                 "Skip when the loss is this many standard deviations above the window's mean.", "off"),
             key("grad_norm_zscore", &LossSpike::grad_norm_zscore, above(0),
                 "Skip when the gradient norm is, before clipping.", "off"),
             key("window", &LossSpike::window, at_least(2),
                 "Newest updates that mean and deviation are of; skipped steps are left out."),
             key("warmup_steps", &LossSpike::warmup_steps, at_least(2),
                 "Updates that the window must hold before a step is judged."),
             key("max_skipped_steps", &LossSpike::max_skipped_steps, at_least(1),
                 "Spikes without an update in between that stop the run.")}),
        section(
            "parallelism", &JobConfig::parallelism, "degrees; their product is the number of ranks",
            {key("data_parallel_replicate_degree", &Parallelism::data_parallel_replicate_degree, at_least(1),
                 "Copies of the sharded model (DDP; with shards: HSDP)."),
             key("data_parallel_shard_degree", &Parallelism::data_parallel_shard_degree,
                 minus_one_or_at_least(1),
                 "Ranks that share parameters, gradients and states (FSDP); -1: all that the others leave."),
             key("fsdp_reshard_after_forward", &Parallelism::fsdp_reshard_after_forward, any(),
                 "Free gathered parameters between forward and backward; default: always, never with "
                 "pipeline."),
             key("tensor_parallel_degree", &Parallelism::tensor_parallel_degree, at_least(1),
                 "Ranks that split each matrix, and the sequence between matrices; keep it within a node."),
             key("pipeline_parallel_degree", &Parallelism::pipeline_parallel_degree, at_least(1),
                 "Groups of ranks that split the layers."),
             key("pipeline_parallel_schedule", &Parallelism::pipeline_parallel_schedule, any(),
                 "Order of microbatches: GPipe keeps the activations of all, 1F1B of one per stage."),
             key("pipeline_parallel_microbatch_size", &Parallelism::pipeline_parallel_microbatch_size, size(),
                 "Samples that go through the pipeline together; divides local_batch_size."),
             key("pipeline_parallel_first_stage_less_layers",
                 &Parallelism::pipeline_parallel_first_stage_less_layers, at_least(0),
                 "Layers that the first stage has fewer, to make up for the embedding."),
             key("pipeline_parallel_last_stage_less_layers",
                 &Parallelism::pipeline_parallel_last_stage_less_layers, at_least(0),
                 "Layers that the last stage has fewer, to make up for the head."),
             key("pipeline_parallel_layers_per_stage", &Parallelism::pipeline_parallel_layers_per_stage,
                 size(), "Layers of each stage; empty: even, after the two keys above.")}),
        section(
            "checkpoint", &JobConfig::checkpoint,
            "saving the run, and what it begins with; lib/checkpoint/FORMAT.md says what lies on disk",
            {key("enable", &Checkpoint::enable, any(),
                 "Save each interval, at the last step and on a signal (exit 75); resume from what is "
                 "there."),
             key("folder", &Checkpoint::folder, any(),
                 "Folder of the steps, within job.dump_folder unless its path is absolute."),
             key("interval", &Checkpoint::interval, at_least(1), "Steps from one save to the next."),
             key("keep_latest_k", &Checkpoint::keep_latest_k, at_least(0),
                 "Newest saved steps that are kept, 2 at least; 0: all."),
             key("keep_every", &Checkpoint::keep_every, at_least(1),
                 "Steps that are multiples of it are kept for good; a multiple of interval.", "none"),
             key("async_mode", &Checkpoint::async_mode, any(),
                 "async: a step stops only to copy what is saved to host memory; disabled: until it is "
                 "written."),
             key("enable_first_step_checkpoint", &Checkpoint::enable_first_step_checkpoint, any(),
                 "Save step 1 too, to see early that saving works."),
             key("last_save_model_only", &Checkpoint::last_save_model_only, any(),
                 "Save the weights alone at the last step; a longer run then cannot go on from there."),
             key("last_save_in_hf", &Checkpoint::last_save_in_hf, any(),
                 "Write the last step as a Hugging Face folder too, step-N-hf beside step-N."),
             key("export_dtype", &Checkpoint::export_dtype, among({Float16, BFloat16, Float32}),
                 "Weights of last_save_model_only and last_save_in_hf.", "as trained"),
             key("load_step", &Checkpoint::load_step, minus_one_or_at_least(1),
                 "Step to resume from; -1: the newest that is sound. Steps after it are set aside."),
             key("load_only", &Checkpoint::load_only, any(), "Resume, but save nothing."),
             key("verify_on_load", &Checkpoint::verify_on_load, any(),
                 "Read all of it first and compare its checks. false: only missing, cut and foreign files "
                 "are seen."),
             key("exclude_from_loading", &Checkpoint::exclude_from_loading, any(),
                 "Parts that start anew: moments and loss scale; place in the data; step, tokens, "
                 "schedule."),
             key("initial_load_path", &Checkpoint::initial_load_path, any(),
                 "What a new run begins with: a run (its newest sound step), a step, a file or Hugging "
                 "Face's folder."),
             key("initial_load_model_only", &Checkpoint::initial_load_model_only, any(),
                 "Take the weights alone from there; false: the whole state, and go on at its step."),
             key("initial_load_in_hf", &Checkpoint::initial_load_in_hf, any(),
                 "Demand that it is Hugging Face's (found by looking too); no path: "
                 "model.hf_assets_path.")}),
        section(
            "activation_checkpoint", &JobConfig::activation_checkpoint, "memory against time",
            {key("mode", &ActivationCheckpoint::mode, any(),
                 "What backward recomputes: nothing, the cheap parts of a layer, or all but its input.")}),
        section("compile", &JobConfig::compile, "how operations are launched",
                {key("enable", &Compile::enable, any(),
                     "Fused kernels and graphs; false: less in each kernel, and no graphs; the same bits."),
                 key("graphs", &Compile::graphs, any(),
                     "GPUs: record forward and backward once and launch them as graphs; the same bits either "
                     "way."),
                 key("search_algorithms", &Compile::search_algorithms, any(),
                     "GPUs: time cuBLASLt's algorithms once; the run keeps them, another one may round "
                     "otherwise.")}),
        section(
            "metrics", &JobConfig::metrics, "what is shown",
            {key("log_freq", &Metrics::log_freq, at_least(1), "Steps from one progress line to the next."),
             key("layer_grad_norms", &Metrics::layer_grad_norms, any(),
                 "Write the gradient norm of the embedding, each layer and the head to metrics.jsonl too."),
             key("measure_gemm_peak", &Metrics::measure_gemm_peak, any(),
                 "Time a matrix product first; its rate stands beside the datasheet's, or is what MFU is "
                 "against."),
             key("live_line", &Metrics::live_line, any(),
                 "A last line that is rewritten each step; auto: where stderr is a terminal (behind mpirun "
                 "it is not)."),
             key("enable_tensorboard", &Metrics::enable_tensorboard, any(),
                 "Write TensorBoard event files, a point each log_freq steps."),
             key("save_tb_folder", &Metrics::save_tb_folder, any(),
                 "Folder of the event files, within job.dump_folder.")}),
        section(
            "comm", &JobConfig::comm, "communication between ranks",
            {key("train_timeout_seconds", &Comm::train_timeout_seconds, at_least(1),
                 "How long one operation waits for other ranks before the run stops and names those that are "
                 "missing."),
             key("shared_memory", &Comm::shared_memory, any(),
                 "Ranks of one node exchange tensors through memory that they share; false: through MPI."),
             key("shared_memory_mib", &Comm::shared_memory_mib, size(),
                 "Most MiB that a rank shares for each group of ranks; it takes what is in flight at "
                 "once."),
             key("gpu_path", &Comm::gpu_path, any(),
                 "GPUs: NCCL, or through the host's memory; auto: NCCL where each rank has its own GPU.")}),
        section(
            "debug", &JobConfig::debug, "repeating a run, finding a fault",
            {key("seed", &Debug::seed, at_least(0), "Key of initial weights and of the order of samples."),
             key("deterministic", &Debug::deterministic, any(),
                 "Losses and weights repeat bit for bit with the same ranks, threads, processors, GPUs, NCCL "
                 "and build."),
             key("plain_operations", &Debug::plain_operations, any(),
                 "LibTorch's operations instead of own kernels, to compare: slower, more memory, and not the "
                 "same bits.")}),
    };
}

}  // namespace

const std::vector<Section>& schema() {
    static const std::vector<Section> table = make_schema();
    return table;
}

}  // namespace argosy::config
