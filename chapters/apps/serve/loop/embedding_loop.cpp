#include "chapters/apps/serve/loop/embedding_loop.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>

namespace llm::serve {

// The place of a request in the queue, which it leaves at its end.
class EmbeddingLoop::Turns {
 public:
    explicit Turns(EmbeddingLoop& loop) : loop_(loop) {
        const std::lock_guard lock(loop_.mutex_);
        if (!loop_.accepts_) throw ServerStops();
        if (loop_.queue_.size() > loop_.max_waiting_) throw ServerBusy();
        loop_.queue_.push_back(this);
        loop_.publish_state();
    }
    ~Turns() {
        const std::lock_guard lock(loop_.mutex_);
        std::erase(loop_.queue_, this);
        loop_.publish_state();
        loop_.changed_.notify_all();
    }
    Turns(const Turns&) = delete;
    Turns& operator=(const Turns&) = delete;

    // Waits until this request is the first. False: keep_on said no.
    bool wait(const std::function<bool()>& keep_on) {
        while (keep_on()) {
            std::unique_lock lock(loop_.mutex_);
            if (loop_.cancels_) throw ServerStops();
            if (loop_.queue_.front() == this) return true;
            loop_.changed_.wait_for(lock, std::chrono::milliseconds(20));
        }
        return false;
    }
    // The others come before the next batch.
    void end() {
        const std::lock_guard lock(loop_.mutex_);
        loop_.queue_.pop_front();
        loop_.queue_.push_back(this);
        loop_.changed_.notify_all();
    }

 private:
    EmbeddingLoop& loop_;
};

std::optional<Matrix> EmbeddingLoop::embed(const std::vector<std::vector<Id>>& texts,
                                           const std::function<bool()>& keep_on) {
    Turns turns(*this);
    Matrix vectors = xt::zeros<Real>({texts.size(), encoder_.config.hidden_size});  // (N, C)
    for (const std::vector<std::size_t>& batch : batches_by_length(texts, max_batch_tokens_)) {
        if (!turns.wait(keep_on)) return std::nullopt;
        std::vector<std::vector<Id>> chosen;
        for (const std::size_t n : batch) {
            chosen.push_back(texts[n]);
            metrics_.add_prompt(texts[n].size());
        }
        const Matrix computed = models::embed_texts(encoder_, pooling_, chosen);  // (batch, C)
        for (std::size_t i = 0; i < batch.size(); ++i)
            xt::view(vectors, batch[i]) = xt::view(computed, i);
        turns.end();
    }
    return vectors;
}

std::size_t EmbeddingLoop::stop_accepting() {
    const std::lock_guard lock(mutex_);
    accepts_ = false;
    return queue_.size();
}

std::size_t EmbeddingLoop::num_open() const {
    const std::lock_guard lock(mutex_);
    return queue_.size();
}

std::size_t EmbeddingLoop::cancel_all() {
    const std::lock_guard lock(mutex_);
    accepts_ = false;
    cancels_ = true;
    changed_.notify_all();
    return queue_.size();
}

void EmbeddingLoop::publish_state() {
    const std::size_t running = std::min<std::size_t>(1, queue_.size());
    metrics_.set_state({running, queue_.size() - running});
}

std::vector<std::vector<std::size_t>> batches_by_length(
    const std::vector<std::vector<Id>>& texts, std::size_t max_tokens) {
    std::vector<std::size_t> order(texts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return texts[a].size() < texts[b].size();
    });
    std::vector<std::vector<std::size_t>> batches;
    std::size_t num_tokens = 0;
    for (const std::size_t n : order) {
        num_tokens += texts[n].size();
        if (batches.empty() || num_tokens > max_tokens) {
            batches.emplace_back();
            num_tokens = texts[n].size();
        }
        batches.back().push_back(n);
    }
    return batches;
}

}  // namespace llm::serve
