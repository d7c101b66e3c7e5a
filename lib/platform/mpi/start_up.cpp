#include "mpi/start_up.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/raw_file.h"
#include "base/text.h"

namespace argosy::mpi {
namespace {

namespace fs = std::filesystem;

/// A rank renews its line kRenewals times within the limit. A rank counts as missing only after
/// kMissedRenewals missed renewals, because a file's time may reach other nodes late, and a busy node may
/// pause the rank.
constexpr int kRenewals = 10, kMissedRenewals = 3;

double seconds_between_renewals(const Environment::Start& start) {
    return static_cast<double>(start.seconds) / kRenewals;
}

/// A rank's line in the file of its node: "rank seconds calls", all lines of one length. The seconds are
/// those of the node's clock.
struct Line {
    int rank = 0;
    double seconds = 0;
    int64_t num_calls_left = 0;

    std::string text() const { return fmt::format("{:7} {:14.3f} {:8}\n", rank, seconds, num_calls_left); }
};

/// This rank's line. The file stays open, so that a renewal is no operation on the folder. A failure is
/// ignored: messages may then list this rank as missing, and jobs/shell/job.sh waits up to 30 s for the line
/// before it passes on a signal.
class OwnLine {
  public:
    /// Writes the line with the time of now, and `num_left` more calls left. Any thread may call this.
    void renew(const Environment::Start& start, int num_left = 0) {
        const std::lock_guard lock(mutex_);
        num_calls_left_ += num_left;
        if (start.arrivals.empty() || start.rank < 0) return;
        const auto now = std::chrono::system_clock::now().time_since_epoch();
        const std::string text =
            Line{start.rank, std::chrono::duration<double>(now).count(), num_calls_left_}.text();
        if (file_.number() < 0) return add(start, text);
        if (pwrite(file_.number(), text.data(), text.size(), at_) < 0) return;
        sync_file_range(file_.number(), 0, 0, SYNC_FILE_RANGE_WRITE);  // other nodes see it soon
    }

    /// The number of bounded calls that this rank has left. Every rank makes the same calls.
    int64_t num_calls_left() {
        const std::lock_guard lock(mutex_);
        return num_calls_left_;
    }

  private:
    /// Appends the line, and learns its place.
    void add(const Environment::Start& start, const std::string& text) {
        const std::string path = fs::path(start.arrivals) / Environment::read().node_name();
        const auto open_file = [&] {
            file_ = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
            return file_.number() >= 0;
        };
        std::error_code ignored;
        if (!open_file() && !(fs::create_directory(start.arrivals, ignored), open_file())) return;
        const ssize_t num_written = write(file_.number(), text.data(), text.size());
        at_ = lseek(file_.number(), 0, SEEK_CUR) - static_cast<off_t>(text.size());
        // Without O_APPEND, pwrite() writes to its offset.
        if (num_written != std::ssize(text) || fcntl(file_.number(), F_SETFL, 0) != 0) file_ = Descriptor();
    }

    std::mutex mutex_;
    Descriptor file_;
    off_t at_ = 0;
    int64_t num_calls_left_ = 0;
};

OwnLine& own_line() {
    static OwnLine only;
    return only;
}

struct NodeFile {
    fs::file_time_type time;
    std::vector<Line> lines;
};

std::vector<NodeFile> read_nodes(const fs::path& folder) {
    std::vector<NodeFile> nodes;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        if (entry->path().filename().string().starts_with('.')) continue;
        std::error_code unreadable;
        NodeFile node{fs::last_write_time(entry->path(), unreadable)};
        std::ifstream file(entry->path());
        for (Line line; file >> line.rank >> line.seconds >> line.num_calls_left;) node.lines.push_back(line);
        if (!unreadable && !node.lines.empty()) nodes.push_back(std::move(node));
    }
    return nodes;
}

/// The missing ranks, ascending. The times of lines are compared within a node, and the times of files
/// between nodes, since clocks differ. On a file system that takes the writer's clock, the nodes' clocks must
/// agree to a fifth of the limit.
std::vector<int> find_missing(const Environment::Start& start) {
    const std::vector<NodeFile> nodes = read_nodes(start.arrivals);
    if (nodes.empty()) return {};
    const double oldest_age = kMissedRenewals * seconds_between_renewals(start);
    const auto newest_file = std::ranges::max(nodes, {}, &NodeFile::time).time;
    std::vector<bool> is_there(start.num_ranks);
    for (const NodeFile& node : nodes) {
        const double newest_line = std::ranges::max(node.lines, {}, &Line::seconds).seconds;
        const double age = std::chrono::duration<double>(newest_file - node.time).count();
        for (const Line& line : node.lines) {
            if (line.rank < 0 || line.rank >= start.num_ranks) continue;
            const bool is_renewed = age <= oldest_age && newest_line - line.seconds <= oldest_age;
            is_there[line.rank] = is_renewed || line.num_calls_left > own_line().num_calls_left();
        }
    }
    std::vector<int> missing;
    for (int rank = 0; rank < start.num_ranks; ++rank)
        if (!is_there[rank]) missing.push_back(rank);
    return missing;
}

/// Whether another rank has called this before, in this job.
bool another_reports(const Environment::Start& start) {
    if (start.arrivals.empty()) return false;
    const std::string path = fs::path(start.arrivals) / ".report";
    const Descriptor made(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    return made.number() < 0 && errno == EEXIST;
}

}  // namespace

std::string named_missing(std::span<const int> ranks) {
    constexpr size_t kMaxMissing = 400;
    return "missing: rank " + listed(ranks, kMaxMissing);
}

BoundedCall::BoundedCall(std::string what) : what_(std::move(what)) {
    const Environment::Start start = Environment::read().start;
    own_line().renew(start);
    if (start.seconds > 0) thread_ = std::thread([this, start] { watch(start); });
}

BoundedCall::~BoundedCall() {
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    done_changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    own_line().renew(Environment::read().start, /*num_left=*/1);
}

bool BoundedCall::returns_within(double seconds, const Environment::Start& start) {
    const double renewal = seconds_between_renewals(start);
    std::unique_lock lock(mutex_);
    for (double left = seconds; left > 0; left -= renewal) {
        const std::chrono::duration<double> pause(std::min(left, renewal));
        if (done_changed_.wait_for(lock, pause, [this] { return done_; })) return true;
        own_line().renew(start);
    }
    return false;
}

/// Only one rank reads the files and prints: the first one that times out. The launcher ends all ranks when
/// that rank exits. Ranks take turns, so that few of them ask who is the first. Another rank waits
/// kSecondsForReporter, because the launcher might end the first one before it prints. If the job still runs
/// after that, the rank prints a message of its own, without names.
void BoundedCall::watch(const Environment::Start& start) {
    constexpr double kSecondsBetweenRanks = 0.5, kSecondsForReporter = 10;
    constexpr int kMaxTurns = 20;
    const double turn = std::clamp(start.rank, 0, kMaxTurns) * kSecondsBetweenRanks;
    if (returns_within(start.seconds + turn, start)) return;
    const bool is_first = !another_reports(start);
    if (!is_first && returns_within(kSecondsForReporter, start)) return;
    const std::vector<int> missing = is_first ? find_missing(start) : std::vector<int>();
    fmt::print(stderr, "{}: error: {} took more than {} s (ARGOSY_START_SECONDS); {}\n",
               program_invocation_short_name, what_, start.seconds,
               missing.empty() ? "a rank did not reach this call, or this rank hangs in it"
                               : named_missing(missing));
    std::fflush(stderr);
    _exit(static_cast<int>(ExitCode::Watchdog));
}

void all_gather_bytes_at_start(const Comm& ranks, void* all, std::span<const std::byte> own,
                               const std::string& what) {
    const BoundedCall call("the exchange of " + what);
    wait(ranks.all_gather(all, own.data(), own.size(), ElementType::UInt8));
}

}  // namespace argosy::mpi
