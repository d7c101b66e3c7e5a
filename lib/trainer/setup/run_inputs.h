// The inputs of a run: its command line, and the token files that the configuration names, checked against
// the model. They are the same on all ranks (mpi/agreement.h), except for paths that lead to equal contents:
// model.hf_assets_path, parallelism.pipeline_parallel_schedule_csv and the paths of token files, and
// job.dump_folder while checkpoint.enable is false. Variables of the environment, such as numbers of threads,
// may differ.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/job_config.h"
#include "config/parse.h"
#include "data/loader.h"
#include "model/model_spec.h"
#include "mpi/agreement.h"
#include "mpi/comm.h"
#include "train/validation.h"

namespace argosy::setup {

/// COLLECTIVE: parses the command line. Throws UserError on all ranks if it is wrong on some of them, or if
/// ranks have different commands.
config::CommandLine same_command_line(const mpi::Comm& ranks, const std::vector<std::string>& words);

/// For the comparison between ranks: the keys of the configuration, without paths that may differ. Reads no
/// file.
std::vector<mpi::Fact> setting_facts(const config::JobConfig& config);
/// In place of paths that may differ: the contents of config.json, the tokenizer and the schedule.
std::vector<mpi::Fact> file_facts(const config::JobConfig& config);

/// COLLECTIVE: throws UserError on all ranks if they have different executables, setting_facts() or
/// file_facts(). Does not read token files.
void require_same_settings(const mpi::Comm& ranks, const config::JobConfig& config);

/// The samples of training.dataset_path or data.mixture. Throws UserError if neither is set, if the
/// vocabulary of the tokens is larger than the model's, if they were made with another tokenizer than that in
/// model.hf_assets_path, if a folder with a tokenizer alone has a larger vocabulary than the model, and as
/// data::Loader does.
data::Loader training_data(const config::JobConfig& config, const model::ModelSpec& spec);

/// COLLECTIVE: training_data(), which must be the same on all ranks: numbers of tokens, vocabularies,
/// tokenizers, loss masks and checksums, as the files' headers say. Else throws UserError on all ranks.
/// `control` carries no training data.
data::Loader same_training_data(const mpi::Comm& ranks, comm::Communicator& control,
                                const config::JobConfig& config, const model::ModelSpec& spec);

/// The samples of validation.dataset_path, in their order and with the same checks; none unless
/// validation.enable is set.
std::optional<data::Loader> validation_data(const config::JobConfig& config, const model::ModelSpec& spec);

/// COLLECTIVE. Validation with validation_data(), which must be the same on all ranks. Throws UserError if
/// the training data say another tokenizer. REQUIRES: `options` are those of the trainer; trainer and mesh
/// outlive the result.
std::optional<train::Validation> make_validation(const mpi::Comm& ranks, comm::Communicator& control,
                                                 const config::JobConfig& config,
                                                 const data::Loader& training,
                                                 const train::TrainerOptions& options,
                                                 train::Trainer& trainer, comm::Mesh& mesh);

/// For a program that only checks the inputs: the paths of data, and whether this rank finds them. Opens no
/// file.
std::vector<mpi::Fact> data_path_facts(const config::JobConfig& config);

/// For a program that only checks the inputs: what same_training_data() and make_validation() compare. An
/// error is a fact, too.
std::vector<mpi::Fact> data_facts(const config::JobConfig& config, const model::ModelSpec& spec);

}  // namespace argosy::setup
