// Sends short texts between rank 0 and each other rank (a star) over TCP, outside of MPI and NCCL, so that
// they arrive even when MPI or NCCL hangs. If all ranks are on one node, the connections use loopback.
// Connections that do not present the job's random key are dropped. Rank 0 has a file descriptor for each
// other rank, and raises its soft limit of open files if it must, at most to the hard limit. Rank 0 waits for
// incoming texts with epoll, so n messages cost n steps. After the connections are made, one thread calls all
// members except wake().
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/raw_file.h"
#include "mpi/comm.h"

namespace argosy::watch {

class WatchConnections {
  public:
    /// COLLECTIVE over `world`. A rank that cannot connect to rank 0 within a few seconds logs a warning and
    /// stays unconnected: the rank receives no texts, and rank 0 does not count it as missing.
    explicit WatchConnections(const mpi::Comm& world);

    /// The same without MPI, step by step. Rank 0 calls listen(), and the caller brings the address to the
    /// other ranks. These call join(), while rank 0 calls accept_until(), which accepts ranks until
    /// `all_tried` returns true: every rank has joined or failed to.
    WatchConnections(int rank, int size);
    struct ServerAddress {
        static constexpr int kMaxAddresses = 16;
        uint64_t key = 0;  // the job's random key
        in_port_t port = 0;
        int32_t num_addresses = 0;
        in_addr_t addresses[kMaxAddresses] = {};
    };
    ServerAddress listen(bool one_node);
    void accept_until(const std::function<bool()>& all_tried);
    void join(const ServerAddress& server);

    int rank() const { return rank_; }
    int size() const { return size_; }
    /// On rank 0: whether `rank` is connected. On other ranks: whether rank 0 is connected.
    bool reaches(int rank) const { return peers_.contains(rank_ == 0 ? rank : 0); }

    /// Rank 0 sends to any rank, the other ranks only to rank 0. A text to a peer that is gone is lost. A
    /// peer that does not accept the whole text within seconds is disconnected.
    void send(int rank, const std::string& text);
    /// Sends from rank 0 to all other ranks, or from another rank to rank 0.
    void send_to_all(const std::string& text);

    /// Disconnects that rank.
    void drop(int rank);

    struct Message {
        int sender;
        std::string text;
        bool closed = false;  // the connection is gone; this is the sender's last message
    };
    /// Returns the messages that have arrived. Waits at most `seconds` for the first one, or until wake().
    std::vector<Message> receive(double seconds);

    /// Makes a waiting receive() return. Any thread may call this.
    void wake();

  private:
    struct Peer {
        Descriptor socket;
        std::string received;
    };
    /// A connection that has not finished the handshake.
    struct PendingConnection {
        Descriptor socket;
        std::string received = {};
        bool answered = false;
    };
    using PendingConnections = std::map<int, PendingConnection>;  // by file descriptor

    void poll_for(int descriptor) const;
    std::vector<int> ready_descriptors(double seconds) const;
    void handle(const std::vector<int>& ready, PendingConnections& pending);
    void accept_all(PendingConnections& pending) const;
    bool continue_handshake(PendingConnection& connection);
    void add_peer(int rank, Descriptor socket);
    void read(int sender, Peer& peer, std::vector<Message>& messages);

    int rank_, size_;
    uint64_t key_ = 0;
    Descriptor listener_, waker_, poller_;
    std::map<int, Peer> peers_;        // on rank 0: all other ranks; on the others: rank 0
    std::map<int, int> rank_of_peer_;  // by file descriptor
};

}  // namespace argosy::watch
