#include <algorithm>
#include <cctype>

#include "preflight/gpu_query.h"
#include "preflight/kernel_log.h"
#include "preflight/network_facts.h"
#include "preflight/nodes.h"
#include "preflight/read_facts.h"
#include "preflight/write_speed.h"

namespace argosy::preflight {
namespace {

namespace fs = std::filesystem;

/// The choice in brackets: "madvise" in "always [madvise] never".
std::string chosen_in(const std::string& line) {
    const size_t start = line.find('['), end = line.find(']', start == line.npos ? 0 : start);
    return start == line.npos || end == line.npos ? "" : line.substr(start + 1, end - start - 1);
}

/// The number of CPUs by governor. Leaves out processors that choose their clocks themselves, because
/// "powersave" does not limit their clocks.
std::map<std::string, int> read_governors(const fs::path& cpus) {
    std::map<std::string, int> governors;
    for (const std::string& name : names_in(cpus)) {
        if (!name.starts_with("cpu")) continue;
        const std::string driver = read_line(cpus / name / "cpufreq/scaling_driver");
        const std::string governor = read_line(cpus / name / "cpufreq/scaling_governor");
        const bool by_itself = driver == "intel_pstate" || driver == "amd-pstate-epp";
        if (!governor.empty() && !by_itself) ++governors[governor];
    }
    return governors;
}

/// The kernel's boot id. If the kernel hides it, the node's name, so that the node counts as its own machine.
std::string boot_id(const Sources& sources) {
    const std::string id = read_line(sources.root / "proc/sys/kernel/random/boot_id");
    return id.empty() ? node_name() : id;
}

std::optional<int64_t> available_memory_bytes(const fs::path& meminfo) {
    constexpr std::string_view kKey = "MemAvailable:";
    const std::string text = read_text(meminfo).value_or("");
    for (const std::string_view line : split(text, '\n')) {
        const auto kibibytes =
            line.starts_with(kKey) ? leading_integer(line.substr(kKey.size())) : std::nullopt;
        if (kibibytes && *kibibytes >= 0 && *kibibytes <= kUnlimited / 1024) return *kibibytes * 1024;
    }
    return std::nullopt;
}

/// The CPUs near a GPU. nvidia-smi writes a PCI address as 00000000:3B:00.0, the kernel as 0000:3b:00.0.
std::string cpus_near(const Gpu& gpu, const Sources& sources) {
    constexpr size_t kLetters = 12;
    std::string address = gpu.bus_id.substr(gpu.bus_id.size() - std::min(gpu.bus_id.size(), kLetters));
    std::ranges::transform(address, address.begin(),
                           [](unsigned char letter) { return std::tolower(letter); });
    return read_line(sources.root / "sys/bus/pci/devices" / address / "local_cpulist");
}

}  // namespace

NodeFacts read_node_facts(const Sources& sources, const fs::path& dump_folder) {
    const fs::path cpus = sources.root / "sys/devices/system/cpu";
    NodeFacts facts{
        .name = node_name(),
        .boot_id = boot_id(sources),
        .shared_memory = space_of(sources.root / "dev/shm"),
        .huge_pages = chosen_in(read_line(sources.root / "sys/kernel/mm/transparent_hugepage/enabled")),
        .governors = read_governors(cpus),
        .num_cpus = static_cast<int>(parse_cpu_list(read_line(cpus / "online")).size()),
        .load = leading_number(read_line(sources.root / "proc/loadavg")),
        .available_memory_bytes = available_memory_bytes(sources.root / "proc/meminfo"),
        .interfaces = read_interfaces(sources),
        .adapter_ports = read_adapter_ports(sources),
        .xids = read_xids(sources)};
    GpuAnswer answer = query_gpus(sources);
    facts.gpus = std::move(answer.gpus);
    for (Gpu& gpu : facts.gpus) gpu.near_cpus = cpus_near(gpu, sources);
    facts.gpus_problem = std::move(answer.problem);
    facts.gpus_hang = answer.hung;
    if (!dump_folder.empty()) facts.dump_folder = try_folder(dump_folder);
    return facts;
}

}  // namespace argosy::preflight
