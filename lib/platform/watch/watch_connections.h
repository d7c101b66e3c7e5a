// The connections of a rank to its neighbours in a tree of all ranks (TreePlace): to its parent, which it
// joins, and to its children, which join it. They are TCP connections outside of MPI and NCCL, so that frames
// arrive even when MPI or NCCL hangs. If all ranks are on one node, the connections use loopback. Connections
// that do not present the listener's random key are dropped. A rank has a file descriptor for each neighbour,
// and raises its soft limit of open files if it must, at most to the hard limit. It waits for incoming frames
// with epoll, so n frames cost n steps. After the connections are made, one thread calls all members except
// wake().
#pragma once

#include <netinet/in.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/raw_file.h"

namespace argosy::watch {

/// The place of a rank in a tree in which rank r has the children r * fan_out + 1 to (r + 1) * fan_out. A
/// tree of at most fan_out + 1 ranks is a star.
struct TreePlace {
    int rank, size, fan_out;

    /// REQUIRES: other > 0.
    int parent_of(int other) const { return (other - 1) / fan_out; }
    int parent() const { return rank == 0 ? -1 : parent_of(rank); }
    int first_child() const { return bounded(int64_t{rank} * fan_out + 1); }
    int end_of_children() const { return bounded((int64_t{rank} + 1) * fan_out + 1); }
    int num_children() const { return end_of_children() - first_child(); }

  private:
    int bounded(int64_t other) const { return static_cast<int>(std::min<int64_t>(other, size)); }
};

/// What neighbours send each other. Sender and receiver are any ranks.
struct Frame {
    enum class Kind : int32_t {
        Text,
        Closed,  // the connection of `sender` to its parent is gone
        Absent,  // `sender` cannot be reached, which says nothing about its health
    };
    Kind kind = Kind::Text;
    int32_t sender = 0, receiver = 0;
    std::string text = {};
};

class WatchConnections {
  public:
    explicit WatchConnections(const TreePlace& place);

    // A rank with children calls listen(), and the caller brings the address to them. They call join(), while
    // the rank calls accept_until(), which accepts children until `all_tried` returns true: every child has
    // joined or failed to.
    struct ServerAddress {
        static constexpr int kMaxAddresses = 16;
        uint64_t key = 0;  // the listener's random key
        in_port_t port = 0;
        int32_t num_addresses = 0;
        in_addr_t addresses[kMaxAddresses] = {};
    };
    ServerAddress listen(bool one_node);
    void accept_until(const std::function<bool()>& all_tried);
    /// A rank that cannot connect to its parent within a few seconds logs a warning and stays unconnected.
    void join(const ServerAddress& server);

    bool has(int neighbour) const { return peers_.contains(neighbour); }
    size_t num_connected() const { return peers_.size(); }

    /// Returns at once: what a neighbour does not accept yet is sent during receive() or flush(). A frame is
    /// lost if the neighbour is gone, or has not accepted 64 MiB.
    void send(int neighbour, const Frame& frame);
    /// Waits at most a few seconds until the neighbours have accepted everything.
    void flush();

    struct Arrival {
        int neighbour;
        Frame frame;
    };
    /// Returns the frames that have arrived. Waits at most `seconds` for the first one, or until wake(). The
    /// last frame of a neighbour is of Kind::Closed, for rank 0.
    std::vector<Arrival> receive(double seconds);

    /// Makes a waiting receive() return. Any thread may call this.
    void wake();

  private:
    struct Peer {
        Descriptor socket;
        std::string received = {}, unsent = {};
    };
    /// A connection that has not finished the handshake.
    struct PendingConnection {
        Descriptor socket;
        std::string received = {};
        bool answered = false;
    };
    using PendingConnections = std::map<int, PendingConnection>;  // by file descriptor

    void poll_for(int descriptor, uint32_t events, int operation) const;
    std::vector<int> ready_descriptors(double seconds) const;
    void handle(const std::vector<int>& ready, PendingConnections& pending);
    void accept_all(PendingConnections& pending) const;
    bool continue_handshake(PendingConnection& connection);
    void add_peer(int rank, Descriptor socket);
    void drop(int neighbour);
    void send_unsent(Peer& peer) const;
    void read(int neighbour, Peer& peer, std::vector<Arrival>& arrivals) const;

    const TreePlace place_;
    uint64_t key_ = 0;
    Descriptor listener_, waker_, poller_;
    std::map<int, Peer> peers_;        // by rank
    std::map<int, int> rank_of_peer_;  // by file descriptor
};

}  // namespace argosy::watch
