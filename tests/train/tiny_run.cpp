#include "train/tiny_run.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <numeric>
#include <sstream>

#include "base/random.h"
#include "comm/values.h"

namespace argosy::testing {
namespace {

int64_t random_below(int64_t bound, int64_t step, int64_t sample, int64_t position, uint32_t stream = 0) {
    const auto words = philox(
        {static_cast<uint32_t>(step), static_cast<uint32_t>(sample), static_cast<uint32_t>(position), stream},
        {77, 0});
    return words[0] % bound;
}

model::ModelSpec spec_of(const TinyRunOptions& options) {
    return options.spec.value_or(tiny_spec(options.family));
}

/// Returns tokens 0 .. seq_len of a sample; the last one is a target only.
std::vector<int64_t> make_sample(const TinyRunOptions& options, int64_t vocab_size, int64_t step,
                                 int64_t sample) {
    std::vector<int64_t> tokens(options.seq_len + 1);
    for (int64_t position = 0; position <= options.seq_len; ++position) {
        const bool follows = options.data == TinyData::Pattern && position > 0 &&
                             random_below(8, step, sample, position, 1) != 0;
        tokens[position] = follows ? (5 * tokens[position - 1] + 3) % vocab_size
                                   : random_below(vocab_size, step, sample, position);
    }
    return tokens;
}

/// Models with a window have documents, too.
bool has_documents(const TinyRunOptions& options) {
    return !options.document_lengths.empty() ||
           (!options.spec && tiny_spec(options.family).sliding_window.has_value());
}

/// Whether a document begins at the token, which is not the sample's first one. Without lengths, the
/// documents of each sample begin at different tokens.
bool begins_document(const TinyRunOptions& options, int64_t sample, int64_t token) {
    const auto& lengths = options.document_lengths;
    if (lengths.empty()) return token == sample || token == (3 * sample + 5) % options.seq_len;
    const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    int64_t place = (sample * options.seq_len + token) % all;
    for (auto length = lengths.begin(); place > 0; ++length) place -= *length;
    return place == 0;
}

/// The positions of a sample's tokens.
std::vector<int64_t> positions_of(const TinyRunOptions& options, int64_t sample) {
    std::vector<int64_t> positions;
    for (int64_t token = 0, position = 0; token < options.seq_len; ++token, ++position) {
        if (has_documents(options) && begins_document(options, sample, token)) position = 0;
        positions.push_back(position);
    }
    return positions;
}

/// The number of tokens of a sample that count, from the first one on. It differs much between ranks.
int64_t counted_of(const TinyRunOptions& options, int64_t sample) {
    return (sample * 5) % (options.seq_len + 1);
}

/// Samples first_sample .. first_sample+count-1; of each, the tokens in `parts`.
model::Batch make_batch(const TinyRunOptions& options, int64_t step, int64_t first_sample, int64_t count,
                        const std::vector<layout::Range>& parts) {
    const int64_t vocab_size = spec_of(options).vocab_size;
    std::vector<int64_t> tokens, targets, positions;
    for (int64_t sample = first_sample; sample < first_sample + count; ++sample) {
        const auto all = make_sample(options, vocab_size, step, sample);
        const auto places = positions_of(options, sample);
        for (const layout::Range& part : parts) {
            for (int64_t token = part.begin; token < part.begin + part.size; ++token) {
                tokens.push_back(all[token]);
                targets.push_back(token < counted_of(options, sample) ? all[token + 1] : -1);
                positions.push_back(places[token]);
            }
        }
    }
    model::Batch batch{.tokens = at::tensor(tokens, at::kLong),
                       .targets = at::tensor(targets, at::kLong),
                       .num_sequences = count,
                       .seq_len = std::ssize(tokens) / count};
    if (has_documents(options) || batch.seq_len < options.seq_len) {
        batch.positions = at::tensor(positions, at::kLong);
    }
    return batch;
}

layout::MeshRequest mesh_request(const TinyRunOptions& options) {
    layout::MeshRequest request = options.layout.mesh;
    const auto& experts = spec_of(options).experts;
    request.num_experts = experts ? experts->router.num_experts : 0;
    return request;
}

train::TrainerOptions trainer_options(const TinyRunOptions& options, int64_t num_microbatches) {
    return {.spec = spec_of(options),
            .model = {.precision = options.precision,
                      .casts = options.casts,
                      .tensor = options.layout.tensor,
                      .context = options.layout.context,
                      .seq_len = options.seq_len,
                      .microbatch_size = options.microbatch_size,
                      .seed = options.seed},
            .stage_layers = options.layout.stage_layers,
            .schedule = options.layout.schedule,
            .own_schedule = options.layout.own_schedule,
            .own_schedule_path = "own.csv",
            .reshard = options.layout.reshard,
            .recompute = options.recompute,
            .num_microbatches = num_microbatches,
            .executor = {.graphs = options.graphs},
            .step = {.max_norm = options.max_norm,
                     .groups = options.groups,
                     .unit_grad_norms = options.unit_grad_norms,
                     .qk_clip = options.qk_clip,
                     .balance = options.balance,
                     .adamw = options.adamw,
                     .optimizers = options.optimizers}};
}

void make_router_rows_equal(parallel::ParallelModel& model) {
    for (const auto& parameter : model.parameters()) {
        if (!parameter->spec().name.ends_with("moe.router.weight")) continue;
        const at::Tensor rows = parameter->own_rows(parameter->master()).zero_();
        for (int64_t i = 0; i < rows.size(0); ++i)
            rows[i][(parameter->slab().offset[0] + i) / 2 % rows.size(1)] = 1;
        parameter->refresh_compute();
    }
}

}  // namespace

model::ModelSpec tiny_spec(const std::string& family) {
    model::ModelSpec spec{.name = family,
                          .vocab_size = 131,
                          .dim = 36,
                          .num_layers = 5,
                          .num_heads = 4,
                          .num_kv_heads = 2,
                          .head_dim = 10,
                          .hidden_dim = 53};
    spec.rope_theta = 500;
    if (family == "mistral" || family == "olmo3") spec.sliding_window = 5;
    spec.tied_embeddings = family != "llama3";
    spec.qkv_bias = family == "qwen2";
    if (family == "qwen3") spec.qk_norm = model::QkNorm::Heads;
    if (family == "gemma3") {
        spec.norms = model::NormPlace::Both;
        spec.norms_add_one = spec.scaled_embeddings = true;
        spec.qk_norm = model::QkNorm::Heads;
        spec.activation = ops::Activation::GeluTanh;
        spec.query_scalar = 7;
        spec.sliding_window = 5;
        spec.full_layer_period = 3;
        spec.window_rope_theta = 60;
    }
    if (family == "olmo3") {
        spec.norms = model::NormPlace::After;
        spec.qk_norm = model::QkNorm::Together;
        spec.full_layer_period = 2;
        spec.rope_scaling = {.type = model::RopeScaling::Type::Linear, .factor = 3};
        spec.window_rope_theta = spec.rope_theta;
    }
    if (family == "llama3") {
        spec.qkv_bias = spec.output_bias = spec.mlp_bias = true;
        spec.rope_scaling = {.type = model::RopeScaling::Type::Yarn, .factor = 4, .attention_factor = 1.25};
        spec.rope_scaling->original_context = 8;
    }
    return spec;
}

TinyRun::TinyRun(const TinyRunOptions& options, comm::Communicator& world)
    : options_(options), mesh_(layout::resolve(mesh_request(options), world.size()), world) {
    const int64_t per_rank = options.global_batch / mesh_.degree(layout::kDataAxes);
    trainer_ =
        std::make_unique<train::Trainer>(trainer_options(options, per_rank / options.microbatch_size), mesh_);
    if (options.equal_router_rows) make_router_rows_equal(trainer_->model());
}

train::StepBatch TinyRun::batch(int64_t step) const {
    const int degree = mesh_.degree(layout::kDataAxes);
    const int64_t per_rank = options_.global_batch / degree;
    const int64_t first = mesh_.index(layout::kDataAxes) * per_rank;
    const auto parts =
        layout::context_parts(options_.layout.context.balance, options_.seq_len,
                              mesh_.degree(layout::Axis::Context), mesh_.coordinate(layout::Axis::Context));
    train::StepBatch result;
    for (int64_t i = 0; i < per_rank; i += options_.microbatch_size) {
        model::Batch& batch = result.microbatches.emplace_back(
            make_batch(options_, step, first + i, options_.microbatch_size, parts));
        batch.tokens = batch.tokens.to(mesh_.device());
        batch.targets = batch.targets.to(mesh_.device());
        if (batch.positions.defined()) batch.positions = batch.positions.to(mesh_.device());
    }
    for (int64_t i = 0; i < per_rank; ++i) result.counted_tokens += counted_of(options_, first + i);
    for (int64_t i = 0; i < per_rank * degree; ++i) result.job_counted_tokens += counted_of(options_, i);
    return result;
}

train::StepTotals TinyRun::forward_backward(int64_t step) {
    return trainer_->step().forward_backward(batch(step));
}

train::StepResult TinyRun::update(const train::StepTotals& totals) {
    return trainer_->step().update(totals, options_.lr);
}

NamedTensors TinyRun::gradients() {
    const auto& parameters = trainer_->model().parameters();
    return assemble([&](size_t i) { return parameters[i]->gradient().sum; });
}

NamedTensors TinyRun::weights() {
    const auto& parameters = trainer_->model().parameters();
    return assemble([&](size_t i) { return parameters[i]->master(); });
}

NamedTensors TinyRun::states() {
    std::map<std::string, std::map<size_t, at::Tensor>> by_name;
    for (const auto& [name, parameter, tensor] : trainer_->step().states()) by_name[name][parameter] = tensor;
    // Ranks without parameters of an optimizer do not know the names of its states.
    std::string names;
    for (const auto& [name, tensors] : by_name) names += name + "\n";
    for (const std::string& of_rank : comm::all_gather_texts(mesh_.world(), names)) {
        std::istringstream lines(of_rank);
        for (std::string name; std::getline(lines, name);) by_name[name];
    }
    NamedTensors all;
    for (const auto& [state, tensors] : by_name) {
        const std::function<at::Tensor(size_t)> of = [&](size_t i) {
            return tensors.contains(i) ? tensors.at(i)
                                       : at::zeros_like(trainer_->model().parameters()[i]->master());
        };
        for (const auto& [name, tensor] : assemble(of)) all[state + "/" + name] = tensor;
    }
    return all;
}

NamedTensors TinyRun::assemble(const std::function<at::Tensor(size_t)>& of) {
    NamedTensors whole;
    for (const auto& unit : model::unit_parameters(trainer_->model().spec())) {
        for (const auto& parameter : unit) {
            whole[parameter.spec.name] = at::zeros(parameter.spec.shape, at::kDouble);
        }
    }
    const auto& parameters = trainer_->model().parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
        const auto& parameter = parameters[i];
        if (!parameter->owned()) continue;
        slab_in(whole[parameter->spec().name], parameter->slab()).copy_(parameter->own_rows(of(i)));
    }
    std::vector<comm::Op> sums;
    for (auto& [name, tensor] : whole)
        sums.push_back({.kind = comm::OpKind::AllReduce, .out = tensor, .in = tensor});
    mesh_.world().run(sums);
    return whole;
}

at::Tensor slab_in(at::Tensor whole, const layout::Slab& slab) {
    for (size_t dim = 0; dim < slab.size.size(); ++dim) {
        whole = whole.narrow(static_cast<int64_t>(dim), slab.offset[dim], slab.size[dim]);
    }
    return whole;
}

Difference largest_difference(const NamedTensors& found, const NamedTensors& expected) {
    Difference largest;
    for (const auto& [name, tensor] : expected) {
        const double scale = tensor.abs().max().item<double>();
        const double difference = (found.at(name) - tensor).abs().max().item<double>();
        const double relative = scale == 0 ? difference : difference / scale;
        if (!(relative <= largest.relative)) largest = {relative, name};
    }
    return largest;
}

}  // namespace argosy::testing
