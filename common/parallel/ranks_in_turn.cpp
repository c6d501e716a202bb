#include "common/parallel/ranks_in_turn.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "common/parallel/shared_memory_rank.hpp"
#include "common/parallel/thread_ranks.hpp"
#include "common/tensors/shape.hpp"

namespace llm {
namespace {

using ByteVector = std::vector<std::byte>;

// Leaves the body of a rank that must wait.
struct MustWait {};

// The messages from one rank of a group to another.
struct Channel {
    std::deque<ByteVector> messages;
    std::size_t num_sent = 0, num_received = 0;
};

struct PassedCopy {
    ByteVector bytes;
    std::size_t number_size;
};

// What the members of a group share.
struct LoggedGroup {
    explicit LoggedGroup(std::size_t group_size)
        : size(group_size), channels(group_size * group_size) {}

    Channel& channel(std::size_t source, std::size_t destination) {
        return channels[source * size + destination];
    }

    std::size_t size;
    std::vector<Channel> channels;
    // What each rank passed to the first, second, … collective function. None: not called yet.
    std::vector<std::vector<std::optional<PassedCopy>>> passed;
    std::map<std::pair<std::size_t, std::size_t>, std::shared_ptr<LoggedGroup>>
        parts;  // by number of collective function and color
};

// How far a rank has come.
struct Progress {
    std::vector<ByteVector> received;  // by each completed operation
    std::size_t num_repeated = 0;      // operations of this call of body
    bool has_started = false;          // the operation after the completed ones
    std::size_t sent_number = 0;       // of the last message in its channel, from 1
    std::string reason;                // to wait
    bool has_ended = false;
};

// The log of all ranks.
struct Log {
    std::vector<Progress> ranks;
    bool has_changed = true;  // since all ranks had to wait

    // Performs the next operation of a rank, which begins with start(). Each try is result():
    // what the operation received, or nothing if it must wait.
    ByteVector perform(std::size_t rank, const std::string& reason,
                       const std::function<void()>& start,
                       const std::function<std::optional<ByteVector>()>& result) {
        Progress& progress = ranks[rank];
        if (progress.num_repeated < progress.received.size())
            return progress.received[progress.num_repeated++];
        if (!progress.has_started) start();
        has_changed = has_changed || !progress.has_started;
        progress.has_started = true;
        const std::optional<ByteVector> received = result();
        if (!received) {
            progress.reason = reason;
            throw MustWait();
        }
        progress.has_started = false;
        progress.received.push_back(*received);
        ++progress.num_repeated;
        has_changed = true;
        return *received;
    }
};

class RankInTurn final : public SharedMemoryRank {
 public:
    RankInTurn(Log& log, std::size_t log_rank, std::shared_ptr<LoggedGroup> group,
               std::size_t rank)
        : SharedMemoryRank(rank, group->size),
          log_(log),
          log_rank_(log_rank),
          group_(std::move(group)) {}

    void barrier() override { exchange({}); }

 private:
    void send_bytes(ConstBytes message, std::size_t destination) override {
        const auto put_message = [&] { put(message, destination); };
        wait_until_received(destination, put_message);
    }
    void receive_bytes(Bytes message, std::size_t source) override {
        take(message, source, [] {});
    }
    void send_receive_bytes(ConstBytes sent, std::size_t destination, Bytes received,
                            std::size_t source) override {
        take(received, source, [&] { put(sent, destination); });
        wait_until_received(destination, [] {});
    }
    void put(ConstBytes message, std::size_t destination) {
        Channel& channel = group_->channel(rank(), destination);
        channel.messages.emplace_back(message.begin(), message.end());
        log_.ranks[log_rank_].sent_number = ++channel.num_sent;
    }
    void take(Bytes message, std::size_t source, const std::function<void()>& start) {
        Channel& channel = group_->channel(source, rank());
        const auto check_size = [&](const ByteVector& sent) {
            require(sent.size() == message.size(),
                    "rank {} expects {} bytes from rank {}, which sent {}", rank(),
                    message.size(), source, sent.size());
        };
        const Progress& progress = log_.ranks[log_rank_];
        if (progress.num_repeated < progress.received.size())
            check_size(progress.received[progress.num_repeated]);
        const ByteVector received =
            log_.perform(log_rank_, "for a message from rank " + std::to_string(source), start,
                         [&]() -> std::optional<ByteVector> {
                             if (channel.messages.empty()) return std::nullopt;
                             check_size(channel.messages.front());
                             const ByteVector sent = channel.messages.front();
                             channel.messages.pop_front();
                             ++channel.num_received;
                             return sent;
                         });
        std::copy(received.begin(), received.end(), message.begin());
    }
    void wait_until_received(std::size_t destination, const std::function<void()>& start) {
        const Channel& channel = group_->channel(rank(), destination);
        log_.perform(log_rank_,
                     "until rank " + std::to_string(destination) + " receives its message",
                     start, [&]() -> std::optional<ByteVector> {
                         if (channel.num_received < log_.ranks[log_rank_].sent_number)
                             return std::nullopt;
                         return ByteVector();
                     });
    }

    std::vector<Passed> exchange(Passed own) override {
        const std::size_t number = num_collective_++;
        if (group_->passed.size() <= number) group_->passed.emplace_back(size());
        std::vector<std::optional<PassedCopy>>& passed = group_->passed[number];
        log_.perform(
            log_rank_, "for all ranks of a group of " + std::to_string(size()),
            [&] {
                passed[rank()] =
                    PassedCopy{{own.bytes.begin(), own.bytes.end()}, own.number_size};
            },
            [&]() -> std::optional<ByteVector> {
                for (const std::optional<PassedCopy>& copy : passed)
                    if (!copy) return std::nullopt;
                return ByteVector();
            });
        std::vector<Passed> views;
        for (const std::optional<PassedCopy>& copy : passed)
            views.push_back({copy->bytes, copy->number_size});
        return views;
    }
    void end_exchange() override {}  // the log keeps what was passed
    std::unique_ptr<Communicator> join(std::size_t color,
                                       const std::vector<std::size_t>& members) override {
        std::shared_ptr<LoggedGroup>& part = group_->parts[{num_collective_, color}];
        if (!part) part = std::make_shared<LoggedGroup>(members.size());
        const auto own = std::find(members.begin(), members.end(), rank());
        return std::make_unique<RankInTurn>(log_, log_rank_, part,
                                            std::size_t(own - members.begin()));
    }

    Log& log_;
    std::size_t log_rank_;  // in run_ranks_in_turn
    std::shared_ptr<LoggedGroup> group_;
    std::size_t num_collective_ = 0;  // functions called
};

}  // namespace

void run_ranks_in_turn(std::size_t num_ranks, const std::function<void(Communicator&)>& body) {
    require(num_ranks > 0, "run_ranks: 0 ranks");
    Log log{std::vector<Progress>(num_ranks)};
    const auto world = std::make_shared<LoggedGroup>(num_ranks);
    std::size_t num_ended = 0;
    while (num_ended < num_ranks) {
        if (!std::exchange(log.has_changed, false)) {
            std::vector<std::string> reasons;
            for (const Progress& progress : log.ranks) reasons.push_back(progress.reason);
            throw std::runtime_error(deadlock_message(reasons));
        }
        for (std::size_t rank = 0; rank < num_ranks; ++rank) {
            Progress& progress = log.ranks[rank];
            if (progress.has_ended) continue;
            progress.num_repeated = 0;
            try {
                RankInTurn communicator(log, rank, world, rank);
                body(communicator);
                progress.has_ended = log.has_changed = true;
                progress.reason.clear();
                ++num_ended;
            } catch (const MustWait&) {
            }
        }
    }
}

std::string deadlock_message(std::span<const std::string> reasons) {
    std::string text = "deadlock:";
    for (std::size_t rank = 0; rank < reasons.size(); ++rank)
        text += (rank > 0 ? ", rank " : " rank ") + std::to_string(rank) +
                (reasons[rank].empty() ? " has ended" : " waits " + reasons[rank]);
    return text;
}

#ifdef __EMSCRIPTEN__
void run_ranks(std::size_t num_ranks, const std::function<void(Communicator&)>& body) {
    run_ranks_in_turn(num_ranks, body);
}
#endif

}  // namespace llm
