// Collects the facts of this node, from the kernel's files.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/environment.h"
#include "preflight/read_facts.h"

namespace argosy::preflight {
namespace {

namespace fs = std::filesystem;

/// The kernel's boot id. If the kernel hides the id: the node's name, so that each node counts as a machine.
std::string boot_id(const Sources& sources) {
    const std::string id = read_line(sources.root / "proc/sys/kernel/random/boot_id");
    return id.empty() ? Environment::read().node_name() : id;
}

/// Name prefixes of interfaces that do not lead to other machines: both ends of the link are on this machine,
/// or only this machine can reach the network behind it.
constexpr std::string_view kLocalPrefixes[] = {"docker", "veth", "virbr", "br-",   "cni",     "cali",
                                               "podman", "lxc",  "lxd",   "dummy", "flannel", "ifb"};

bool has_device(const fs::path& interface) {
    std::error_code ignored;
    return fs::exists(interface / "device", ignored);
}

/// A virtual interface can lead to other machines too: a bond, a VLAN, a container's eth0, a bridge with a
/// physical member.
bool leaves_the_machine(const fs::path& net, const std::string& name) {
    if (name == "lo") return false;
    if (std::ranges::any_of(kLocalPrefixes, [&](auto prefix) { return name.starts_with(prefix); }))
        return false;
    std::error_code ignored;
    if (!fs::is_directory(net / name / "bridge", ignored)) return true;
    return std::ranges::any_of(names_in(net / name / "brif"),
                               [&](const std::string& member) { return has_device(net / member); });
}

/// "4: ACTIVE" without its number.
std::string state_in(const fs::path& file) {
    const std::string line = read_line(file);
    return std::string(trimmed(std::string_view(line).substr(line.find(':') + 1)));
}

AdapterPort read_port(const fs::path& adapter, int number) {
    const fs::path port = adapter / "ports" / std::to_string(number);
    return {.adapter = printable(adapter.filename().string()),
            .port = number,
            .state = state_in(port / "state"),
            .physical_state = state_in(port / "phys_state"),
            .link_layer = read_line(port / "link_layer"),
            .gigabits = leading_number(read_line(port / "rate")).value_or(0)};
}

}  // namespace

NodeFacts read_node_facts(const Sources& sources, const fs::path& dump_folder) {
    const fs::path cpus = sources.root / "sys/devices/system/cpu";
    NodeFacts facts{.name = Environment::read().node_name(),
                    .boot_id = boot_id(sources),
                    .shared_memory = space_of(sources.root / "dev/shm"),
                    .num_cpus = static_cast<int>(parse_cpu_list(read_line(cpus / "online")).size()),
                    .interfaces = read_interfaces(sources),
                    .adapter_ports = read_adapter_ports(sources)};
    GpuAnswer answer = look_at_gpus(sources, Dcgm::HealthAndDiagnosis);
    facts.gpus = std::move(answer.gpus);
    facts.gpus_problem = std::move(answer.problem);
    facts.has_nvidia_smi = answer.has_nvidia_smi;
    facts.gpus_hang = answer.hung;
    facts.gpus_out_of_time = answer.out_of_time;
    facts.dcgm = std::move(answer.dcgm);
    if (!dump_folder.empty()) facts.dump_folder = try_folder(dump_folder, sources.folder_seconds);
    return facts;
}

std::vector<Interface> read_interfaces(const Sources& sources) {
    constexpr int64_t kMaxMegabits = 100'000'000;
    const fs::path net = sources.root / "sys/class/net";
    std::error_code ignored;
    std::vector<Interface> interfaces;
    for (const std::string& name : names_in(net)) {
        if (!fs::is_directory(net / name, ignored)) continue;  // "bonding_masters" is a file
        Interface interface {
            .name = printable(name), .state = read_line(net / name / "operstate"),
            .leaves_the_machine = leaves_the_machine(net, name)
        };
        const auto megabits = leading_integer(read_line(net / name / "speed"));
        if (megabits && *megabits > 0 && *megabits <= kMaxMegabits)
            interface.megabits = static_cast<int>(*megabits);
        interfaces.push_back(std::move(interface));
    }
    return interfaces;
}

std::vector<AdapterPort> read_adapter_ports(const Sources& sources) {
    constexpr int64_t kMaxPorts = 255;
    const fs::path adapters = sources.root / "sys/class/infiniband";
    std::vector<AdapterPort> ports;
    for (const std::string& adapter : names_in(adapters)) {
        for (const std::string& port : names_in(adapters / adapter / "ports")) {
            const auto number = leading_integer(port);
            if (!number || *number < 1 || *number > kMaxPorts) continue;
            ports.push_back(read_port(adapters / adapter, static_cast<int>(*number)));
        }
    }
    return ports;
}

}  // namespace argosy::preflight
