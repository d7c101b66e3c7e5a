#include "preflight/read_facts.h"

#include <algorithm>
#include <charconv>
#include <limits>

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
    {"clocks.max.sm", "", set<&Gpu::most_sm_megahertz, leading_integer>},
    {"clocks_throttle_reasons.active", "clocks_event_reasons.active", set<&Gpu::throttle_reasons, parse_hex>},
    {"ecc.errors.uncorrected.volatile.total", "", set<&Gpu::uncorrected_errors, leading_integer>},
    {"pcie.link.width.current", "", set<&Gpu::pcie_lanes, leading_integer>},
    {"pcie.link.width.max", "", set<&Gpu::most_pcie_lanes, leading_integer>},
    {"pcie.link.gen.current", "", set<&Gpu::pcie_generation, leading_integer>},
    {"pcie.link.gen.max", "", set<&Gpu::most_pcie_generation, leading_integer>},
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

GpuAnswer ask_for(const Sources& sources, const char* question, std::vector<Field> fields, double deadline) {
    GpuAnswer answer;
    for (;;) {
        std::string names;
        for (const Field& field : fields) names += (names.empty() ? "" : ",") + std::string(field.name);
        const double seconds = std::max(deadline - seconds_now(), 0.0);
        const CommandResult command = run_command({sources.nvidia_smi, question + names, kFormat}, seconds);
        answer.hung = command.end == CommandResult::End::Hung;
        answer.has_nvidia_smi = command.end != CommandResult::End::NotFound;
        if (command.end != CommandResult::End::Exited) return answer;
        if (command.status == 0 || command.status == kCorruptInfoRom) {
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

constexpr size_t kMaxLogBytes = 16 << 20;

/// The age of a line of /dev/kmsg. The third number before the semicolon is its time in us since boot.
std::optional<double> age_hours(std::string_view line, std::optional<double> uptime_seconds) {
    const size_t head = line.find(';');
    if (!uptime_seconds || head == line.npos) return std::nullopt;
    const std::vector<std::string_view> parts = split(line.substr(0, head), ',');
    const auto microseconds = parts.size() < 3 ? std::nullopt : leading_integer(parts[2]);
    if (!microseconds) return std::nullopt;
    return std::max(0.0, *uptime_seconds - static_cast<double>(*microseconds) * 1e-6) / 3600;
}

/// Parses a line such as "NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus."
std::optional<Xid> xid_in(std::string_view line) {
    constexpr std::string_view kMark = "NVRM: Xid (", kAddress = "PCI:", kEnd = "): ";
    const size_t mark = line.find(kMark);
    if (mark == line.npos) return std::nullopt;
    std::string_view rest = line.substr(mark + kMark.size());
    const size_t end = rest.find(kEnd);
    if (end == rest.npos) return std::nullopt;
    const auto code = leading_integer(rest.substr(end + kEnd.size()));
    if (!code || *code < 1 || *code > std::numeric_limits<int>::max()) return std::nullopt;
    std::string_view address = rest.substr(0, end);
    if (address.starts_with(kAddress)) address.remove_prefix(kAddress.size());
    return Xid{.bus_id = printable(address), .code = static_cast<int>(*code)};
}

}  // namespace

/// Ignores an error of the query for remapped rows, because GPUs before Ampere cannot remap rows.
GpuAnswer query_gpus(const Sources& sources) {
    const double deadline = seconds_now() + sources.nvidia_smi_seconds;
    GpuAnswer answer = ask_for(sources, "--query-gpu=", kGpuFields, deadline);
    if (answer.gpus.empty()) return answer;
    const GpuAnswer remapped = ask_for(sources, "--query-remapped-rows=", kRemappedRowFields, deadline);
    answer.hung = remapped.hung;
    if (remapped.corrupt_info_rom) answer.corrupt_info_rom = true;
    for (Gpu& gpu : answer.gpus) {
        const auto row = std::ranges::find(remapped.gpus, gpu.bus_id, &Gpu::bus_id);
        if (row == remapped.gpus.end()) continue;
        gpu.remapping_pending = row->remapping_pending;
        gpu.remapping_failed = row->remapping_failed;
    }
    return answer;
}

void read_replays(const Sources& sources, std::vector<Gpu>& gpus) {
    if (gpus.empty()) return;
    const CommandResult report = run_command({sources.nvidia_smi, "-q"}, sources.nvidia_smi_seconds);
    Gpu* gpu = nullptr;  // the one that the lines are about
    for (const std::string_view line : split(report.output, '\n')) {
        constexpr std::string_view kGpu = "GPU ", kReplays = "Replays Since Reset";
        if (line.starts_with(kGpu)) {
            const std::string address = pci_address(std::string(line.substr(kGpu.size())));
            const auto named = std::ranges::find_if(
                gpus, [&](const Gpu& one) { return pci_address(one.bus_id) == address; });
            if (named != gpus.end()) gpu = &*named;
        } else if (gpu && line.starts_with(kReplays)) {
            gpu->pcie_replays = leading_integer(line.substr(std::min(line.find(':'), line.size() - 1) + 1));
        }
    }
}

std::vector<Xid> xids_in(std::string_view log, std::optional<double> uptime_seconds) {
    std::vector<Xid> xids;
    for (const std::string_view line : split(log, '\n')) {
        std::optional<Xid> xid = xid_in(line);
        if (!xid) continue;
        xid->age_hours = age_hours(line, uptime_seconds);
        std::erase_if(xids, [&](const Xid& earlier) {
            return earlier.bus_id == xid->bus_id && earlier.code == xid->code;
        });
        xids.push_back(std::move(*xid));
    }
    return xids;
}

std::optional<std::vector<Xid>> read_xids(const Sources& sources) {
    for (const char* log : {"dev/kmsg", "var/log/kern.log", "var/log/messages", "var/log/syslog"}) {
        const auto text = read_text(sources.root / log, kMaxLogBytes);
        if (text && !text->empty())
            return xids_in(*text, leading_number(read_line(sources.root / "proc/uptime")));
    }
    return std::nullopt;
}

}  // namespace argosy::preflight
