#include "preflight/read_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

/// nvidia-smi's exit code if a GPU's infoROM is corrupt; all rows are printed nevertheless, and a warning.
constexpr int kCorruptInfoRom = 14;
constexpr const char* kFormat = "--format=csv,noheader,nounits";

/// The number in a text such as "0x0000000000000040".
std::optional<int64_t> parse_hex(std::string_view text) {
    if (!text.starts_with("0x")) return std::nullopt;
    int64_t bits = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
    return error == std::errc() ? std::optional(bits) : std::nullopt;
}

/// Some drivers answer "Yes" or "No", others give a count.
std::optional<bool> parse_bool(std::string_view text) {
    if (text == "Yes" || text == "No") return text == "Yes";
    const auto number = leading_integer(text);
    return number ? std::optional(*number != 0) : std::nullopt;
}

/// A field to query. `newer_name` is the field's name in newer drivers; empty if it is the same.
struct Field {
    const char* name;
    const char* newer_name;
    void (*set)(Gpu&, std::string_view);
};

template <auto Member, auto Parse>
void set(Gpu& gpu, std::string_view value) {
    gpu.*Member = Parse(value);
}

const std::vector<Field> kGpuFields = {
    {"pci.bus_id", "", set<&Gpu::bus_id, printable>},
    {"name", "", set<&Gpu::name, printable>},
    {"driver_version", "", set<&Gpu::driver, printable>},
    {"clocks.current.sm", "", set<&Gpu::sm_megahertz, leading_integer>},
    {"clocks.max.sm", "", set<&Gpu::max_sm_megahertz, leading_integer>},
    {"clocks_throttle_reasons.active", "clocks_event_reasons.active", set<&Gpu::throttle_reasons, parse_hex>},
    {"ecc.errors.uncorrected.volatile.total", "", set<&Gpu::uncorrected_errors, leading_integer>},
    {"pcie.link.width.current", "", set<&Gpu::pcie_lanes, leading_integer>},
    {"pcie.link.width.max", "", set<&Gpu::max_pcie_lanes, leading_integer>},
    {"pcie.link.gen.current", "", set<&Gpu::pcie_generation, leading_integer>},
    {"pcie.link.gen.max", "", set<&Gpu::max_pcie_generation, leading_integer>},
    {"memory.used", "", set<&Gpu::used_mebibytes, leading_integer>},
    {"memory.total", "", set<&Gpu::total_mebibytes, leading_integer>},
    {"compute_mode", "", set<&Gpu::compute_mode, printable>},
    {"mig.mode.current", "", set<&Gpu::mig_mode, printable>},
    {"persistence_mode", "", set<&Gpu::persistence, printable>},
    {"uuid", "", set<&Gpu::uuid, printable>},
    {"fabric.state", "", set<&Gpu::fabric_state, printable>},
    {"fabric.status", "", set<&Gpu::fabric_status, printable>},
    {"fabric.clusterUuid", "", set<&Gpu::fabric_domain, printable>},
    {"fabric.cliqueId", "", set<&Gpu::fabric_clique, printable>},
    {"ecc.errors.corrected.volatile.total", "", set<&Gpu::corrected_errors, leading_integer>},
};
const std::vector<Field> kRemappedRowFields = {
    {"gpu_bus_id", "", set<&Gpu::bus_id, printable>},
    {"remapped_rows.pending", "", set<&Gpu::remapping_pending, parse_bool>},
    {"remapped_rows.failure", "", set<&Gpu::remapping_failed, parse_bool>},
};

std::string first_line(std::string_view text) {
    text = trimmed(text);
    constexpr size_t kMaxShown = 200;
    return printable(text.substr(0, std::min(text.find('\n'), kMaxShown)));
}

/// The field's name in nvidia-smi's error `Field "..." is not a valid field to query`.
std::string refused_field(std::string_view output) {
    constexpr std::string_view kStart = "Field \"";
    const size_t start = output.find(kStart);
    if (start == output.npos || output.find("not a valid field") == output.npos) return "";
    const std::string_view rest = output.substr(start + kStart.size());
    return std::string(rest.substr(0, rest.find('"')));
}

/// After the driver refused a field: replaces the name by its newer name, or removes the field. Returns false
/// if there is no field of that name.
bool replace_or_remove(std::vector<Field>& fields, const std::string& name) {
    const auto field = std::ranges::find_if(fields, [&](const Field& row) { return name == row.name; });
    if (field == fields.end()) return false;
    if (*field->newer_name) {
        *field = {field->newer_name, "", field->set};
    } else {
        fields.erase(field);
    }
    return true;
}

/// Reads the row of one GPU. The first value is the GPU's PCI address. A value in brackets gives the reason
/// why there is no value: "[N/A]", "[Not Supported]".
void read_row(std::string_view line, const std::vector<Field>& fields, GpuAnswer& answer) {
    const std::vector<std::string_view> values = split(line, ',');
    if (values.size() != fields.size() || values[0].find(':') == std::string_view::npos) {
        answer.problem = "it says: " + first_line(line);
        return;
    }
    Gpu gpu;
    for (size_t i = 0; i < values.size(); ++i) {
        if (values[i].find("requires reset") != std::string_view::npos)
            answer.problem = "a GPU requires a reset";
        if (!values[i].starts_with('[') && values[i] != "N/A") fields[i].set(gpu, values[i]);
    }
    answer.gpus.push_back(std::move(gpu));
}

/// Whether the program has ended by itself, and all of its output is there.
bool is_complete(const CommandResult& command) {
    return command.end == CommandResult::End::Exited &&
           (command.status == 0 || command.status == kCorruptInfoRom);
}

/// Calls of nvidia-smi with one deadline.
class NvidiaSmi {
  public:
    explicit NvidiaSmi(const Sources& sources)
        : program_(sources.nvidia_smi),
          hang_seconds_(sources.hang_seconds),
          deadline_(seconds_now() + sources.nvidia_smi_seconds) {}

    /// No call follows one that did not end.
    CommandResult call(const std::vector<std::string>& arguments) {
        const double left = deadline_ - seconds_now();
        if (left <= 0) out_of_time_ = true;
        if (hung_ || out_of_time_) return {.end = CommandResult::End::Hung};
        std::vector<std::string> command = {program_};
        command.insert(command.end(), arguments.begin(), arguments.end());
        CommandResult result = run_command(command, std::min(left, hang_seconds_));
        // A healthy nvidia-smi may need some seconds, so a call that had little time proves nothing.
        if (result.end == CommandResult::End::Hung) (left < hang_seconds_ ? out_of_time_ : hung_) = true;
        return result;
    }

    /// The output of a call; empty if it did not end, or failed.
    std::string report(const std::vector<std::string>& arguments) {
        CommandResult command = call(arguments);
        return is_complete(command) ? std::move(command.output) : "";
    }

    /// The answer, with how the calls ended.
    GpuAnswer end(GpuAnswer answer) const {
        answer.hung = hung_;
        answer.out_of_time = out_of_time_;
        return answer;
    }

  private:
    std::string program_;
    double hang_seconds_, deadline_;
    bool hung_ = false, out_of_time_ = false;
};

GpuAnswer ask_for(NvidiaSmi& nvidia_smi, const char* question, std::vector<Field> fields) {
    GpuAnswer answer;
    for (;;) {
        std::string names;
        for (const Field& field : fields) names += (names.empty() ? "" : ",") + std::string(field.name);
        const CommandResult command = nvidia_smi.call({question + names, kFormat});
        answer.has_nvidia_smi = command.end != CommandResult::End::NotFound;
        if (command.end != CommandResult::End::Exited) return answer;
        if (is_complete(command)) {
            for (const std::string_view line : split(command.output, '\n')) {
                if (line.empty() || (command.status != 0 && line.starts_with("WARNING"))) continue;
                read_row(line, fields, answer);
            }
            answer.corrupt_info_rom = command.status == kCorruptInfoRom;
            return answer;
        }
        const std::string refused = refused_field(command.output);
        if (!replace_or_remove(fields, refused) || fields.empty()) {
            answer.problem =
                "it exits with " + std::to_string(command.status) + ": " + first_line(command.output);
            return answer;
        }
    }
}

/// Ignores an error of the query for remapped rows, because GPUs before Ampere cannot remap rows.
GpuAnswer query(NvidiaSmi& nvidia_smi) {
    GpuAnswer answer = ask_for(nvidia_smi, "--query-gpu=", kGpuFields);
    if (answer.gpus.empty()) return answer;
    const GpuAnswer remapped = ask_for(nvidia_smi, "--query-remapped-rows=", kRemappedRowFields);
    if (remapped.corrupt_info_rom) answer.corrupt_info_rom = true;
    for (Gpu& gpu : answer.gpus) {
        const auto row = std::ranges::find(remapped.gpus, gpu.bus_id, &Gpu::bus_id);
        if (row == remapped.gpus.end()) continue;
        gpu.remapping_pending = row->remapping_pending;
        gpu.remapping_failed = row->remapping_failed;
    }
    return answer;
}

/// The value of a line such as "Replays Since Reset  : 12".
std::string_view value_of(std::string_view line) {
    return trimmed(line.substr(std::min(line.find(':'), line.size() - 1) + 1));
}

/// A line of the section "Fabric" that says that something is wrong. Drivers have some of these lines.
bool is_fabric_problem(std::string_view line) {
    constexpr std::pair<std::string_view, std::string_view> kProblems[] = {
        {"Summary", "Unhealthy"},
        {"Summary", "Limited Capacity"},
        {"Bandwidth", "Degraded"},
        {"Route Unhealthy", "True"},
        {"Access Timeout Recovery", "True"}};
    const auto is_same = [](char left, char right) { return std::tolower(left) == std::tolower(right); };
    return std::ranges::any_of(kProblems, [&](const auto& problem) {
        return line.starts_with(problem.first) && std::ranges::equal(value_of(line), problem.second, is_same);
    });
}

/// Reads what only the full report `nvidia-smi -q` has.
void read_report(std::string_view report, std::vector<Gpu>& gpus) {
    Gpu* gpu = nullptr;  // the one that the lines are about
    bool of_fabric = false;
    for (const std::string_view line : split(report, '\n')) {
        constexpr std::string_view kGpu = "GPU ", kReplays = "Replays Since Reset";
        // Only the first line about a GPU has nothing but its address after the word: "GPU UUID : ...".
        if (line.starts_with(kGpu) && line.rfind(' ') < kGpu.size()) {
            const std::string address = pci_address(std::string(line.substr(kGpu.size())));
            const auto named = std::ranges::find_if(
                gpus, [&](const Gpu& one) { return pci_address(one.bus_id) == address; });
            gpu = named != gpus.end() ? &*named : nullptr;
            of_fabric = false;
        } else if (line == "Fabric" || line.starts_with("Processes")) {
            of_fabric = line == "Fabric";
        } else if (gpu && line.starts_with(kReplays)) {
            gpu->pcie_replays = leading_integer(value_of(line));
        } else if (gpu && of_fabric && is_fabric_problem(line)) {
            gpu->fabric_problem += fmt::format("{}{}: {}", gpu->fabric_problem.empty() ? "" : ", ",
                                               trimmed(line.substr(0, line.find(':'))), value_of(line));
        }
    }
}

/// Reads the output of `nvidia-smi nvlink --status`:
///     GPU 0: NVIDIA H200 (UUID: GPU-8932f937-...)
///              Link 0: 26.562 GB/s
///              Link 1: <inactive>
/// A GPU without a line about its links has no NVLink. A link that is down may also be missing.
void read_nvlinks(std::string_view status, std::vector<Gpu>& gpus) {
    Gpu* gpu = nullptr;  // the one that the lines are about
    for (const std::string_view line : split(status, '\n')) {
        if (line.starts_with("GPU ")) {
            const auto named = std::ranges::find_if(gpus, [&](const Gpu& one) {
                return !one.uuid.empty() && line.find(one.uuid + ")") != line.npos;
            });
            gpu = named != gpus.end() ? &*named : nullptr;
        }
        if (!gpu) continue;
        if (line.find("all links are inActive") != line.npos) gpu->active_nvlinks = 0;
        if (!line.starts_with("Link ")) continue;
        const double rate = leading_number(value_of(line)).value_or(0);  // none: "<inactive>"
        gpu->active_nvlinks = gpu->active_nvlinks.value_or(0) + (rate > 0 ? 1 : 0);
        gpu->nvlink_gigabytes += rate;
    }
}

}  // namespace

GpuAnswer query_gpus(const Sources& sources) {
    NvidiaSmi nvidia_smi(sources);
    return nvidia_smi.end(query(nvidia_smi));
}

GpuAnswer look_at_gpus(const Sources& sources) {
    NvidiaSmi nvidia_smi(sources);
    GpuAnswer answer = query(nvidia_smi);
    if (!answer.gpus.empty()) {
        read_report(nvidia_smi.report({"-q"}), answer.gpus);
        read_nvlinks(nvidia_smi.report({"nvlink", "--status"}), answer.gpus);
    }
    return nvidia_smi.end(std::move(answer));
}

}  // namespace argosy::preflight
