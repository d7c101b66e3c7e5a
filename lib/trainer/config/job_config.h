// The configuration of a run: one struct per section of the configuration file, with the defaults.
// `parse_command_line` makes a JobConfig, and nothing changes it afterwards. Each key is a member here and a
// line in fields.cpp, with its meaning and limits. An optional member is set exactly if its key was given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/choices.h"
#include "config/value.h"

namespace argosy::config {

struct Job {
    std::string dump_folder = "./outputs";
    std::string description;
    bool operator==(const Job&) const = default;
};

// A model is a preset (name and flavor) or the architecture of a Hugging Face folder. If both are given, they
// must agree. The preset's keys are optional, so that the default preset applies only if neither is given.
struct Model {
    static constexpr const char* kDefaultName = "llama3";
    static constexpr const char* kDefaultFlavor = "debugmodel";
    std::optional<std::string> name;
    std::optional<std::string> flavor;
    std::string hf_assets_path;
    std::vector<std::string> accept_config_keys;
    std::vector<Converter> converters;
    bool operator==(const Model&) const = default;
};

/// An entry of optimizer.groups.
struct ParameterGroup {
    std::string part;  // of the parameters' names
    double lr_factor = 1;
    std::optional<double> weight_decay;  // unset: the optimizer's
    bool operator==(const ParameterGroup&) const = default;
};

struct Optimizer {
    OptimizerName name = OptimizerName::AdamW;
    double lr = 8e-4;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0.1;
    bool decay_all_parameters = false;
    std::optional<Precision> state_dtype;  // unset: float32, or float64 with training.dtype
    std::vector<ParameterGroup> groups;
    std::optional<double> qk_clip;  // unset: none
    double muon_momentum = 0.95;
    bool muon_nesterov = true;
    int64_t muon_ns_steps = 5;
    MuonAdjustLr muon_adjust_lr = MuonAdjustLr::MatchRmsAdamW;
    std::optional<Precision> muon_ns_dtype;  // unset: bfloat16, or float64 with training.dtype
    MuonSplit muon_split = MuonSplit::Projection;
    bool muon_routers = true;
    bool operator==(const Optimizer&) const = default;
};

struct LrScheduler {
    int64_t warmup_steps = 200;
    std::optional<int64_t> total_steps;  // unset: training.steps, or fewer if training.max_tokens ends the
                                         // run earlier
    std::optional<double> decay_ratio;   // unset: all steps after the warm-up
    DecayType decay_type = DecayType::Linear;
    double min_lr_factor = 0;
    bool operator==(const LrScheduler&) const = default;
};

/// An entry of data.mixture.
struct MixtureSource {
    std::string path;
    double weight = 1;
    bool operator==(const MixtureSource&) const = default;
};

// Several sources of samples, in place of training.dataset_path.
struct Data {
    std::vector<MixtureSource> mixture;
    bool operator==(const Data&) const = default;
};

struct Training {
    std::string dataset_path;
    bool verify_dataset = true;
    int64_t local_batch_size = 8;
    int64_t global_batch_size = -1;
    int64_t seq_len = 2048;
    double max_norm = 1.0;
    int64_t steps = 10000;
    std::optional<int64_t> max_tokens;  // unset: no limit
    std::optional<Duration> max_time;   // unset: no limit
    bool shuffle = true;
    int64_t first_sample = 0;  // of a run that begins
    bool attend_across_documents = true;
    bool count_document_starts = true;
    Precision dtype = Precision::Float32;
    Precision mixed_precision_param = Precision::BFloat16;
    Precision mixed_precision_reduce = Precision::Float32;
    std::optional<Precision> gradient_accumulation_dtype;  // unset: mixed_precision_reduce
    int max_nonfinite_steps = 5;
    bool operator==(const Training&) const = default;
};

// Held-out samples whose loss is measured during training.
struct Validation {
    static constexpr int64_t kWholeSet = -1;  // a value of steps
    bool enable = false;
    std::string dataset_path;
    int64_t freq = 10;
    int64_t steps = kWholeSet;
    std::optional<int64_t> local_batch_size;  // unset: training.local_batch_size
    std::optional<int64_t> seq_len;           // unset: training.seq_len
    bool operator==(const Validation&) const = default;
};

// Tasks that are evaluated during training; none unless `tasks` has any.
struct Evaluation {
    std::vector<std::string> tasks;
    int64_t freq = 500;
    std::string tokenizer;  // empty: that of model.hf_assets_path
    int64_t num_fewshot = 0;
    std::string fewshot_file;
    int64_t limit = 0;  // 0: all records
    bool operator==(const Evaluation&) const = default;
};

// No update is skipped if neither z-score is set; check_consistency then refuses changes of the other keys.
struct LossSpike {
    std::optional<double> loss_zscore;
    std::optional<double> grad_norm_zscore;
    int window = 128;
    int warmup_steps = 64;
    int max_skipped_steps = 5;
    bool enabled() const { return loss_zscore || grad_norm_zscore; }
    bool operator==(const LossSpike&) const = default;
};

struct Parallelism {
    int data_parallel_replicate_degree = 1;
    int data_parallel_shard_degree = -1;
    ReshardAfterForward fsdp_reshard_after_forward = ReshardAfterForward::Default;
    int tensor_parallel_degree = 1;
    Switch enable_async_tensor_parallel = Switch::Off;
    bool disable_loss_parallel = false;
    int context_parallel_degree = 1;
    int expert_parallel_degree = 1;
    RotateMethod context_parallel_rotate_method = RotateMethod::AllGather;
    layout::ContextBalance context_parallel_load_balancer = layout::ContextBalance::HeadTail;
    int pipeline_parallel_degree = 1;
    PipelineSchedule pipeline_parallel_schedule = PipelineSchedule::OneForwardOneBackward;
    std::string pipeline_parallel_schedule_csv;
    int64_t pipeline_parallel_microbatch_size = 1;
    int pipeline_parallel_first_stage_less_layers = 1;
    int pipeline_parallel_last_stage_less_layers = 1;
    std::vector<int64_t> pipeline_parallel_layers_per_stage;
    bool operator==(const Parallelism&) const = default;
};

// Only for models with experts; of other models, setup refuses values that are not the defaults.
struct Moe {
    // The balance of experts; 0 turns a part off.
    double bias_update_rate = 0;
    double sequence_loss = 0;
    double step_loss = 0;
    double z_loss = 0;
    bool force_balance = false;
    double planned_imbalance = 1.2;
    bool operator==(const Moe&) const = default;
};

struct Float8 {
    std::optional<Float8Recipe> recipe_name;  // recipe(), unless set
    Float8Recipe recipe() const { return recipe_name.value_or(Float8Recipe::Tensorwise); }
    std::vector<std::string> filter_fqns;
    bool enable_fsdp_float8_all_gather = false;
    bool emulate = false;
    bool operator==(const Float8&) const = default;
};

struct Mx {
    std::optional<MxRecipe> recipe_name;  // recipe(), unless set
    MxRecipe recipe() const { return recipe_name.value_or(MxRecipe::Floor); }
    std::vector<std::string> filter_fqns = {"output"};
    bool operator==(const Mx&) const = default;
};

struct ActivationCheckpoint {
    RecomputeMode mode = RecomputeMode::Selective;
    bool operator==(const ActivationCheckpoint&) const = default;
};

// `enable` controls saving; initial_load_path works without it.
struct Checkpoint {
    static constexpr int64_t kNewest = -1;  // a value of load_step
    bool enable = false;
    std::string folder = "checkpoint";  // within job.dump_folder
    int64_t interval = 500;
    int64_t keep_latest_k = 10;         // 0: all
    std::optional<int64_t> keep_every;  // unset: no step number is kept permanently
    AsyncMode async_mode = AsyncMode::Async;
    bool enable_first_step_checkpoint = false;
    bool last_save_model_only = false;
    bool last_save_in_hf = false;
    std::optional<Precision> export_dtype;  // unset: the weights' own type
    int64_t load_step = kNewest;
    bool load_only = false;
    bool verify_on_load = true;
    std::vector<SavedPart> exclude_from_loading;
    std::string initial_load_path;
    bool initial_load_model_only = true;
    bool initial_load_in_hf = false;
    bool saves() const { return enable && !load_only; }
    bool operator==(const Checkpoint&) const = default;
};

struct Compile {
    bool enable = true;
    Switch graphs = Switch::Auto;
    MaskedAttention masked_attention = MaskedAttention::Flash;
    bool operator==(const Compile&) const = default;
};

struct Metrics {
    int64_t log_freq = 10;
    bool layer_grad_norms = false;
    bool measure_gemm_peak = false;
    bool enable_tensorboard = false;
    std::string save_tb_folder = "tb";
    std::string baseline;  // empty: none
    bool operator==(const Metrics&) const = default;
};

// Traces of some steps, for Chrome's trace viewer and Perfetto.
struct Profiling {
    bool enable_profiling = false;
    std::string save_traces_folder = "profile_traces";  // within job.dump_folder
    int64_t profile_freq = 10;
    bool operator==(const Profiling&) const = default;
};

struct Comm {
    int init_timeout_seconds = 300;
    int train_timeout_seconds = 100;
    int storage_timeout_seconds = 900;
    bool shared_memory = true;
    int64_t shared_memory_mib = 64;
    GpuPathChoice gpu_path = GpuPathChoice::Auto;
    int collective_channels = 0, message_channels = 0;  // of each NCCL communicator; 0: NCCL chooses
    bool products_leave_channels = false, registered_memory = false, peer_copies = false;
    bool operator==(const Comm&) const = default;
};

struct Debug {
    int64_t seed = 0;
    bool deterministic = false;
    bool plain_operations = false;
    bool operator==(const Debug&) const = default;
};

struct JobConfig {
    Job job;
    Model model;
    Optimizer optimizer;
    LrScheduler lr_scheduler;
    Training training;
    Data data;
    Validation validation;
    Evaluation evaluation;
    LossSpike loss_spike;
    Parallelism parallelism;
    Moe moe;
    Checkpoint checkpoint;
    ActivationCheckpoint activation_checkpoint;
    Float8 float8;
    Mx mx;
    Compile compile;
    Metrics metrics;
    Profiling profiling;
    Comm comm;
    Debug debug;
    bool operator==(const JobConfig&) const = default;
};

/// Checks combinations of keys that do not depend on the number of ranks (layout/mesh_shape.h checks degrees
/// against ranks). Throws UserError with the contradicting values and what to change. consistency.cpp has the
/// checks.
void check_consistency(const JobConfig& config);

}  // namespace argosy::config
