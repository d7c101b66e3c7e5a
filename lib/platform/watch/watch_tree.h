// Sends short texts between rank 0 and each other rank along a tree (TreePlace), outside of MPI and NCCL. A
// rank between them passes frames on while it receives (receive(), relay()), so a text needs that each rank
// on its way still runs. No rank has more than fan_out children: a node's kernel queues at most
// net.core.somaxconn new connections (128 before Linux 5.4), drops those of further ranks, and lets them try
// again after seconds. With 128 children, 16,513 ranks are at most two connections away from rank 0.
//
// Invariants:
// 1. Texts from one rank to another arrive in order.
// 2. Rank 0 hears of each connection that closes, from the parent of the rank whose connection it was.
// 3. Rank 0 never takes a rank for closed because a rank on the way has closed or is silent; see parent_of().
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "mpi/comm.h"
#include "watch/watch_connections.h"

namespace argosy::watch {

class WatchTree {
  public:
    /// COLLECTIVE over `world`. A rank that cannot connect to its parent within a few seconds logs a warning
    /// and stays unconnected: it and its descendants receive no texts, and rank 0 does not count them as
    /// missing.
    WatchTree(const mpi::Comm& world, int fan_out);

    /// The same without MPI, step by step, as in WatchConnections.
    explicit WatchTree(const TreePlace& place) : place_(place), connections_(place) {}
    WatchConnections::ServerAddress listen(bool one_node) { return connections_.listen(one_node); }
    void accept_until(const std::function<bool()>& all_tried);
    void join(const WatchConnections::ServerAddress& server) { connections_.join(server); }

    int rank() const { return place_.rank; }
    int size() const { return place_.size; }
    /// The rank through which rank `rank` > 0 reaches rank 0, or 0.
    int parent_of(int rank) const { return place_.parent_of(rank); }
    /// Whether other ranks reach rank 0 through this rank.
    bool is_between() const { return rank() != 0 && place_.num_children() > 0; }
    /// On rank 0: whether `rank` is connected, as far as rank 0 knows. On other ranks: whether the parent is.
    bool reaches(int rank) const;

    /// Rank 0 sends to any rank, the other ranks only to rank 0. A text to a rank that is gone is lost.
    void send(int rank, const std::string& text);
    /// Sends from rank 0 to all other ranks, or from another rank to rank 0 and to its own children.
    void send_to_all(const std::string& text);

    /// Sends no more to that rank.
    void drop(int rank) { gone_.insert(rank); }

    struct Message {
        int sender;
        std::string text;
        bool closed = false;  // the sender's connection to its parent, or to this rank, is gone
    };
    /// Passes on the frames for other ranks, and returns the messages for this rank that have arrived. Waits
    /// at most `seconds` for the first frame, or until wake(). Ranks other than 0 hear only from rank 0 and
    /// from their parent.
    std::vector<Message> receive(double seconds);

    /// Passes frames on until the parent or all children are gone. Drops the messages for this rank.
    void relay();

    /// Waits at most a few seconds until the neighbours have accepted everything. Call this before the end of
    /// the process.
    void flush() { connections_.flush(); }

    /// Makes a waiting receive() return. Any thread may call this.
    void wake() { connections_.wake(); }

  private:
    /// Receivers of a frame: all ranks below the sender, or the neighbour alone.
    static constexpr int kAll = -1, kNeighbour = -2;

    bool has_parent() const { return rank() != 0 && connections_.has(place_.parent()); }
    void send_up(const Frame& frame);
    void send_down(const Frame& frame);
    void send_to_children(const Frame& frame);

    const TreePlace place_;
    WatchConnections connections_;
    std::set<int> gone_;  // on rank 0: the ranks that have no connection to their parent
};

}  // namespace argosy::watch
