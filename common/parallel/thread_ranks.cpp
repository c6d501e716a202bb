#include "common/parallel/thread_ranks.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/parallel/ranks_in_turn.hpp"
#include "common/tensors/shape.hpp"

namespace llm {
namespace {

// Ends the calls of the other ranks after one has thrown.
struct OtherRankFailed {};

// What a rank waits for.
struct Waiting {
    std::function<bool()> is_over;
    std::string reason;
};

// All ranks of a call of run_ranks. One mutex protects this and the groups.
class Ranks {
 public:
    explicit Ranks(std::size_t num_ranks) : waiting_(num_ranks), is_running_(num_ranks, true) {}

    std::mutex mutex;

    // Waits until is_over() is true. Throws if it cannot become true.
    void wait(std::unique_lock<std::mutex>& lock, std::size_t rank, const std::string& reason,
              const std::function<bool()>& is_over) {
        waiting_[rank] = {is_over, reason};
        if (all_wait()) fail(deadlock());
        changed_.wait(lock, [&] { return has_failed_ || is_over(); });
        waiting_[rank] = {};
        if (has_failed_) throw OtherRankFailed();
    }
    void notify() { changed_.notify_all(); }

    // A call has returned or thrown.
    void end(std::size_t rank, std::exception_ptr error) {
        const std::lock_guard lock(mutex);
        is_running_[rank] = false;
        if (error) fail(error);
        if (all_wait()) fail(deadlock());
    }
    void rethrow_failure() const {
        if (failure_) std::rethrow_exception(failure_);
    }

 private:
    // Whether no running rank can go on, and there is one.
    bool all_wait() const {
        bool some_wait = false;
        for (std::size_t rank = 0; rank < waiting_.size(); ++rank) {
            if (!is_running_[rank]) continue;
            if (!waiting_[rank].is_over || waiting_[rank].is_over()) return false;
            some_wait = true;
        }
        return some_wait;
    }
    std::exception_ptr deadlock() const {
        std::vector<std::string> reasons;
        for (std::size_t rank = 0; rank < waiting_.size(); ++rank)
            reasons.push_back(is_running_[rank] ? waiting_[rank].reason : "");
        return std::make_exception_ptr(std::runtime_error(deadlock_message(reasons)));
    }
    void fail(std::exception_ptr error) {
        if (!has_failed_) failure_ = std::move(error);
        has_failed_ = true;
        notify();
    }

    std::condition_variable changed_;
    std::vector<Waiting> waiting_;  // of each rank; empty while it runs
    std::vector<bool> is_running_;
    bool has_failed_ = false;
    std::exception_ptr failure_;
};

// What the members of a group share.
struct Group {
    Group(Ranks& all_ranks, std::vector<std::size_t> member_ranks)
        : ranks(all_ranks),
          members(std::move(member_ranks)),
          messages(members.size() * members.size()),
          numbers(members.size()),
          bytes(members.size()),
          colors(members.size()) {}

    // A message that waits for its receiver. Its sender waits, too, so there is at most one
    // from one rank to another.
    struct Message {
        std::span<const std::byte> bytes;
        bool is_sent = false;
    };
    Message& message(std::size_t source, std::size_t destination) {
        return messages[source * members.size() + destination];
    }

    Ranks& ranks;
    const std::vector<std::size_t> members;  // their ranks in run_ranks
    std::vector<Message> messages;
    std::size_t num_in_barrier = 0, num_barriers = 0;
    // What the members pass to a collective function.
    std::vector<Numbers> numbers;
    std::vector<std::span<std::byte>> bytes;
    std::vector<std::size_t> colors;
    std::map<std::size_t, std::shared_ptr<Group>> parts;  // by color
};

class ThreadRank final : public Communicator {
 public:
    ThreadRank(std::shared_ptr<Group> group, std::size_t rank)
        : Communicator(rank, group->members.size()), group_(std::move(group)) {}

    void barrier() override {
        std::unique_lock lock(group_->ranks.mutex);
        const std::size_t number = group_->num_barriers;
        if (++group_->num_in_barrier == size()) {
            group_->num_in_barrier = 0;
            ++group_->num_barriers;
            group_->ranks.notify();
        }
        wait(lock, "for all ranks of a group of " + std::to_string(size()),
             [&] { return group_->num_barriers > number; });
    }

    void all_reduce(Numbers values) override {
        std::visit(
            [&](auto own) {
                const auto sums = sums_over_ranks(own, {0, own.size()});
                std::copy(sums.begin(), sums.end(), own.begin());
            },
            values);
    }

    void reduce_scatter(Numbers values) override {
        std::visit(
            [&](auto own) {
                const Part part = part_of(own.size(), size(), rank());
                const auto sums = sums_over_ranks(own, part);
                std::copy(sums.begin(), sums.end(),
                          own.begin() + static_cast<std::ptrdiff_t>(part.begin));
            },
            values);
    }

    void all_gather(Numbers values) override {
        std::visit(
            [&](auto own) {
                group_->numbers[rank()] = own;
                barrier();
                for (std::size_t other = 0; other < size(); ++other) {
                    if (other == rank()) continue;
                    const auto theirs = numbers_of(other, own);
                    const auto [begin, count] = part_of(own.size(), size(), other);
                    std::copy_n(theirs.data() + begin, count, own.data() + begin);
                }
                barrier();
            },
            values);
    }

    std::unique_ptr<Communicator> split(std::size_t color) override {
        group_->colors[rank()] = color;
        barrier();
        std::vector<std::size_t> members;
        std::size_t own_rank = 0;
        for (std::size_t other = 0; other < size(); ++other) {
            if (group_->colors[other] != color) continue;
            if (other < rank()) ++own_rank;
            members.push_back(group_->members[other]);
        }
        if (own_rank == 0) {
            const std::lock_guard lock(group_->ranks.mutex);
            group_->parts[color] = std::make_shared<Group>(group_->ranks, members);
        }
        barrier();
        const std::shared_ptr<Group> part = group_->parts.at(color);
        barrier();
        return std::make_unique<ThreadRank>(part, own_rank);
    }

 private:
    void send_bytes(ConstBytes message, std::size_t destination) override {
        std::unique_lock lock(group_->ranks.mutex);
        put(message, destination);
        wait_until_received(lock, destination);
    }
    void receive_bytes(Bytes message, std::size_t source) override {
        std::unique_lock lock(group_->ranks.mutex);
        take(lock, message, source);
    }
    void send_receive_bytes(ConstBytes sent, std::size_t destination, Bytes received,
                            std::size_t source) override {
        std::unique_lock lock(group_->ranks.mutex);
        put(sent, destination);
        take(lock, received, source);
        wait_until_received(lock, destination);
    }
    void broadcast_bytes(Bytes values, std::size_t root) override {
        group_->bytes[rank()] = values;
        barrier();
        const Bytes source = group_->bytes[root];
        require(source.size() == values.size(), "broadcast: {} bytes on rank {}, {} on rank {}",
                source.size(), root, values.size(), rank());
        if (rank() != root) std::copy(source.begin(), source.end(), values.begin());
        barrier();
    }

    void put(ConstBytes message, std::size_t destination) {
        group_->message(rank(), destination) = {message, true};
        group_->ranks.notify();
    }
    void take(std::unique_lock<std::mutex>& lock, Bytes message, std::size_t source) {
        Group::Message& sent = group_->message(source, rank());
        wait(lock, "for a message from rank " + std::to_string(source),
             [&] { return sent.is_sent; });
        require(sent.bytes.size() == message.size(),
                "rank {} expects {} bytes from rank {}, which sent {}", rank(), message.size(),
                source, sent.bytes.size());
        lock.unlock();
        if (!message.empty()) std::memcpy(message.data(), sent.bytes.data(), message.size());
        lock.lock();
        sent = {};
        group_->ranks.notify();
    }
    void wait_until_received(std::unique_lock<std::mutex>& lock, std::size_t destination) {
        const Group::Message& sent = group_->message(rank(), destination);
        wait(lock, "until rank " + std::to_string(destination) + " receives its message",
             [&] { return !sent.is_sent; });
    }
    void wait(std::unique_lock<std::mutex>& lock, const std::string& reason,
              const std::function<bool()>& is_over) {
        group_->ranks.wait(lock, group_->members[rank()], reason, is_over);
    }

    // What another rank passed to the same collective function.
    template <class Number>
    std::span<Number> numbers_of(std::size_t other, std::span<Number> own) const {
        const auto* theirs = std::get_if<std::span<Number>>(&group_->numbers[other]);
        require(theirs && theirs->size() == own.size(),
                "a collective function of {} numbers on rank {}, of others on rank {}",
                own.size(), rank(), other);
        return *theirs;
    }

    // In the order of the ranks, so that each rank computes the same bits.
    template <class Number>
    std::vector<Number> sums_over_ranks(std::span<Number> own, Part part) {
        group_->numbers[rank()] = own;
        barrier();
        std::vector<Number> sums(part.size, Number(0));
        for (std::size_t other = 0; other < size(); ++other) {
            const std::span<Number> theirs =
                numbers_of(other, own).subspan(part.begin, part.size);
            for (std::size_t i = 0; i < part.size; ++i) sums[i] += theirs[i];
        }
        barrier();
        return sums;
    }

    std::shared_ptr<Group> group_;
};

}  // namespace

void run_ranks(std::size_t num_ranks, const std::function<void(Communicator&)>& body) {
    require(num_ranks > 0, "run_ranks: 0 ranks");
    Ranks ranks(num_ranks);
    std::vector<std::size_t> members(num_ranks);
    for (std::size_t rank = 0; rank < num_ranks; ++rank) members[rank] = rank;
    const auto world = std::make_shared<Group>(ranks, members);
    const auto run = [&](std::size_t rank) {
        std::exception_ptr error;
        try {
            ThreadRank communicator(world, rank);
            body(communicator);
        } catch (const OtherRankFailed&) {
        } catch (...) {
            error = std::current_exception();
        }
        ranks.end(rank, error);
    };
    std::vector<std::thread> threads;
    for (std::size_t rank = 1; rank < num_ranks; ++rank) threads.emplace_back(run, rank);
    run(0);
    for (std::thread& thread : threads) thread.join();
    ranks.rethrow_failure();
}

}  // namespace llm
