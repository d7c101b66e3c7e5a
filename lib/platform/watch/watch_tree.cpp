#include "watch/watch_tree.h"

#include <utility>

#include "mpi/start_up.h"

namespace argosy::watch {

WatchTree::WatchTree(const mpi::Comm& world, int fan_out)
    : WatchTree(TreePlace{world.rank(), world.size(), fan_out}) {
    if (size() == 1) return;
    using Address = WatchConnections::ServerAddress;
    const mpi::BoundedCall call("connecting the watchdogs of all ranks");
    const bool one_node = world.within_one_node();
    Address own, parents;
    std::vector<mpi::Request> requests;
    if (place_.num_children() > 0) own = listen(one_node);
    for (int child = place_.first_child(); child < place_.end_of_children(); ++child)
        requests.push_back(world.send(&own, sizeof(own), ElementType::UInt8, child, /*synchronous=*/false));
    if (rank() != 0) {
        mpi::wait(world.receive(&parents, sizeof(parents), ElementType::UInt8, place_.parent()));
        join(parents);
    }
    requests.push_back(world.barrier());
    if (place_.num_children() > 0) {
        accept_until([&] { return mpi::test_all(requests); });
    } else {
        mpi::wait(requests.back());
    }
}

void WatchTree::accept_until(const std::function<bool()>& all_tried) {
    connections_.accept_until(all_tried);
    for (int child = place_.first_child(); child < place_.end_of_children(); ++child)
        if (!connections_.has(child)) send_up({.kind = Frame::Kind::Absent, .sender = child});
}

bool WatchTree::reaches(int other) const {
    if (rank() != 0) return has_parent() && !gone_.contains(0);
    for (; other > 0; other = parent_of(other))
        if (gone_.contains(other)) return false;
    return true;
}

void WatchTree::send(int to, const std::string& text) {
    const Frame frame{.sender = rank(), .receiver = to, .text = text};
    rank() == 0 ? send_down(frame) : send_up(frame);
}

void WatchTree::send_to_all(const std::string& text) {
    if (rank() != 0) send(0, text);
    send_to_children({.sender = rank(), .receiver = rank() == 0 ? kAll : kNeighbour, .text = text});
}

/// On rank 0, notes what the frame says of its sender's connection.
void WatchTree::send_up(const Frame& frame) {
    if (rank() != 0) connections_.send(place_.parent(), frame);
    if (rank() == 0 && frame.kind != Frame::Kind::Text) gone_.insert(frame.sender);
}

void WatchTree::send_down(const Frame& frame) {
    int child = frame.receiver;
    while (child > 0 && parent_of(child) != rank()) child = parent_of(child);
    connections_.send(child, frame);
}

void WatchTree::send_to_children(const Frame& frame) {
    for (int child = place_.first_child(); child < place_.end_of_children(); ++child)
        connections_.send(child, frame);
}

std::vector<WatchTree::Message> WatchTree::receive(double seconds) {
    std::vector<Message> messages;
    for (auto& [neighbour, frame] : connections_.receive(seconds)) {
        const bool from_parent = neighbour == place_.parent();
        if (!from_parent) send_up(frame);
        if (from_parent && frame.receiver == kAll) send_to_children(frame);
        const bool is_own =
            from_parent ? frame.kind == Frame::Kind::Closed || frame.receiver == rank() || frame.receiver < 0
                        : rank() == 0 && frame.kind != Frame::Kind::Absent;
        if (is_own) {
            messages.push_back({frame.sender, std::move(frame.text), frame.kind == Frame::Kind::Closed});
        } else if (from_parent) {
            send_down(frame);
        }
    }
    return messages;
}

void WatchTree::relay() {
    constexpr double kSeconds = 60;  // any: frames, also the last ones, end the wait
    while (has_parent() && connections_.num_connected() > 1) receive(kSeconds);
}

}  // namespace argosy::watch
