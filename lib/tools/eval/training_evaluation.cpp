#include "eval/training_evaluation.h"

#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "eval/task_file.h"
#include "eval/task_result.h"
#include "interop/model_source.h"
#include "tokenizer/tokenizer.h"

namespace argosy::eval {
namespace {

/// A signal has asked a rank to end; thrown on all ranks.
struct Interrupted {};

observe::TaskMetrics task_metrics(const TaskResult& result) {
    observe::TaskMetrics metrics{.task = result.task.file.name, .values = {}};
    for (const MetricValue& found : result.metrics) {
        metrics.values.push_back({found.metric->name, found.value, found.standard_error});
    }
    return metrics;
}

/// Refuses a task that `eval` would complete by its own options.
void check(const Task& task, const tokenizer::Tokenizer* tokenizer) {
    if (task.type() == OutputType::Generation) {
        throw UserError("{} generates texts, which training cannot; evaluate its checkpoints with eval",
                        task.file.path.string());
    }
    if (tokenizer != nullptr || !has_texts(task.type())) return;
    throw UserError(
        "{} holds records of text, which need a tokenizer, and model.hf_assets_path has no tokenizer; "
        "set "
        "evaluation.tokenizer to one, or to bytes",
        task.documents[0].place);
}

}  // namespace

std::vector<Work> read_tasks(const config::JobConfig& config, const model::ModelSpec& spec,
                             comm::Communicator& control) {
    const config::Evaluation& evaluation = config.evaluation;
    if (evaluation.tasks.empty()) {
        if (evaluation != config::Evaluation{})
            spdlog::info("[evaluation] has no effect: evaluation.tasks is empty");
        return {};
    }
    interop::ModelSource model;
    model.path = config.model.hf_assets_path;
    model.spec = spec;
    const auto tokenizer = open_tokenizer(evaluation.tokenizer, model);
    const TaskOptions options{spec.vocab_size, evaluation.limit, evaluation.num_fewshot,
                              evaluation.fewshot_file};
    std::vector<Work> tasks;
    for (const TaskName& name : task_names(evaluation.tasks)) {
        Task task = read_task(name, options);
        check(task, tokenizer.get());
        tasks.push_back(make_work(std::move(task), tokenizer.get(),
                                  {config.training.seq_len, "training.seq_len"}, model));
    }
    require_same_tasks(control, tasks);
    if (control.rank() != 0) return tasks;
    if (tokenizer)
        for (const std::string& warning : tokenizer->info().warnings) spdlog::warn("{}", warning);
    for (const Work& work : tasks)
        for (const std::string& warning : work.warnings) spdlog::warn("{}", warning);
    return tasks;
}

TrainingEvaluation::TrainingEvaluation(std::vector<Work> tasks, const train::TrainerOptions& options,
                                       train::Trainer& trainer, comm::Mesh& mesh)
    : tasks_(std::move(tasks)), warns_(mesh.world().rank() == 0) {
    if (!tasks_.empty()) scorer_.emplace(trainer.model(), options, mesh);
}

std::vector<observe::TaskMetrics> TrainingEvaluation::run(train::StopAgreement& stop) {
    const auto end_on_signal = [&](double) {
        if (stop.agreed() == train::StopReason::Signal) throw Interrupted();
    };
    std::vector<observe::TaskMetrics> metrics;
    for (const Work& work : tasks_) {
        try {
            end_on_signal(0);
            metrics.push_back(task_metrics(
                evaluate([&](auto records,
                             const auto& windows) { return scorer_->score(records, windows, end_on_signal); },
                         work.task, work.requests)));
        } catch (const Interrupted&) {
            if (warns_) spdlog::warn("a signal ends the evaluation of tasks, without a result");
            return {};
        } catch (const NotFiniteError& error) {
            if (warns_) spdlog::warn("{} is not evaluated: {}", work.task.file.name, error.what());
        }
    }
    return metrics;
}

}  // namespace argosy::eval
