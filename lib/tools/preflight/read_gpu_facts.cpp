#include "preflight/read_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "preflight/sources.h"

namespace argosy::preflight {
namespace {

constexpr const char* kFormat = "--format=csv,noheader,nounits";

/// The number in a text such as "0x0000000000000040".
std::optional<int64_t> parse_hex(std::string_view text) {
    if (!text.starts_with("0x")) return std::nullopt;
    int64_t bits = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), bits, 16);
    return error == std::errc() ? std::optional(bits) : std::nullopt;
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
    {"clocks_throttle_reasons.active", "clocks_event_reasons.active", set<&Gpu::throttle_reasons, parse_hex>},
    {"ecc.errors.uncorrected.volatile.total", "", set<&Gpu::uncorrected_errors, leading_integer>},
    {"pcie.link.width.current", "", set<&Gpu::pcie_lanes, leading_integer>},
    {"pcie.link.width.max", "", set<&Gpu::most_pcie_lanes, leading_integer>},
    {"pcie.link.gen.current", "", set<&Gpu::pcie_generation, leading_integer>},
    {"pcie.link.gen.max", "", set<&Gpu::most_pcie_generation, leading_integer>},
    {"memory.used", "", set<&Gpu::used_mebibytes, leading_integer>},
    {"memory.total", "", set<&Gpu::total_mebibytes, leading_integer>},
    {"mig.mode.current", "", set<&Gpu::mig_mode, printable>},
    {"uuid", "", set<&Gpu::uuid, printable>},
};

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
/// why there is no value: "[N/A]", "[Not Supported]". Returns false if the line is no row.
bool read_row(std::string_view line, const std::vector<Field>& fields, GpuAnswer& answer) {
    const std::vector<std::string_view> values = split(line, ',');
    if (values.size() != fields.size() || values[0].find(':') == std::string_view::npos) return false;
    Gpu gpu;
    for (size_t i = 0; i < values.size(); ++i) {
        if (values[i].find("requires reset") != std::string_view::npos)
            answer.problem = "a GPU requires a reset";
        if (!values[i].starts_with('[') && values[i] != "N/A") fields[i].set(gpu, values[i]);
    }
    answer.gpus.push_back(std::move(gpu));
    return true;
}

/// Reads the rows also of a call that failed, because nvidia-smi does so after it has printed all rows if a
/// GPU's infoROM is corrupt. But what a program has printed before a signal ended it may end within a number.
void read_rows(const CommandResult& command, const std::vector<Field>& fields, GpuAnswer& answer) {
    const std::string_view output = command.output;
    const bool crashed = command.status < 0;
    std::string_view message = crashed ? output : "";
    for (const std::string_view line : split(crashed ? "" : output, '\n')) {
        if (!line.empty() && !read_row(line, fields, answer) && message.empty()) message = line;
    }
    if (command.status == 0 && message.empty()) return;
    const std::string how =
        command.status == 0 ? "it says: " : fmt::format("it exits with {}: ", command.status);
    answer.problem += (answer.problem.empty() ? "" : "; ") + how + shortened(message);
}

GpuAnswer query(const Sources& sources, Calls& calls) {
    GpuAnswer answer;
    std::vector<Field> fields = kGpuFields;
    for (;;) {
        std::string names;
        for (const Field& field : fields) names += (names.empty() ? "" : ",") + std::string(field.name);
        const CommandResult command =
            calls.run({sources.nvidia_smi, "--query-gpu=" + names, kFormat}, sources.hang_seconds);
        answer.has_nvidia_smi = command.end != CommandResult::End::NotFound;
        if (command.end != CommandResult::End::Exited) return answer;
        const bool retries = command.status != 0 && fields.size() > 1 &&
                             replace_or_remove(fields, refused_field(command.output));
        if (retries) continue;
        read_rows(command, fields, answer);
        return answer;
    }
}

}  // namespace

GpuAnswer look_at_gpus(const Sources& sources, Dcgm questions) {
    Calls calls(sources.gpu_seconds);
    GpuAnswer answer = query(sources, calls);
    answer.hung = calls.hung();
    answer.out_of_time = calls.out_of_time();
    if (!answer.gpus.empty()) answer.dcgm = ask_dcgm(questions, sources, calls);
    return answer;
}

}  // namespace argosy::preflight
