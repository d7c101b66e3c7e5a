#include "preflight/network_facts.h"

#include <algorithm>

namespace argosy::preflight {
namespace {

namespace fs = std::filesystem;

/// Name prefixes of interfaces that do not lead to other machines: both ends of the link are on this machine,
/// or only this machine can reach the network behind it.
constexpr std::string_view kInside[] = {"docker", "veth", "virbr", "br-",   "cni",     "cali",
                                        "podman", "lxc",  "lxd",   "dummy", "flannel", "ifb"};

bool has_device(const fs::path& interface) {
    std::error_code ignored;
    return fs::exists(interface / "device", ignored);
}

/// A virtual interface can lead to other machines too: a bond, a VLAN, a container's eth0, a bridge with a
/// physical member.
bool leaves_the_machine(const fs::path& net, const std::string& name) {
    if (name == "lo") return false;
    if (std::ranges::any_of(kInside, [&](auto prefix) { return name.starts_with(prefix); })) return false;
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

/// PCIe functions in virtual machines show 0 or "Unknown" instead of a value.
template <class Number>
std::optional<Number> if_positive(std::optional<Number> number) {
    return number && *number > 0 ? number : std::nullopt;
}

std::optional<int> lanes_in(const fs::path& file) {
    constexpr int64_t kMaxLanes = 64;  // the kernel shows 255 for "unknown"
    const auto lanes = if_positive(leading_integer(read_line(file)));
    return lanes && *lanes <= kMaxLanes ? std::optional(static_cast<int>(*lanes)) : std::nullopt;
}

AdapterPort read_port(const fs::path& adapter, int number) {
    const fs::path port = adapter / "ports" / std::to_string(number), device = adapter / "device";
    return {.adapter = printable(adapter.filename().string()),
            .port = number,
            .state = state_in(port / "state"),
            .physical_state = state_in(port / "phys_state"),
            .link_layer = read_line(port / "link_layer"),
            .gigabits = leading_number(read_line(port / "rate")).value_or(0),
            .pcie_lanes = lanes_in(device / "current_link_width"),
            .most_pcie_lanes = lanes_in(device / "max_link_width"),
            .pcie_transfers = if_positive(leading_number(read_line(device / "current_link_speed"))),
            .most_pcie_transfers = if_positive(leading_number(read_line(device / "max_link_speed")))};
}

}  // namespace

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
        const auto megabits = if_positive(leading_integer(read_line(net / name / "speed")));
        if (megabits && *megabits <= kMaxMegabits) interface.megabits = static_cast<int>(*megabits);
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
