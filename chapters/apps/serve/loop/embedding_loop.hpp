// The encoder of /v1/embeddings, which computes one batch after the other. Requests take turns,
// a batch each, so that a short one need not wait for all of a long one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "chapters/apps/serve/loop/metrics.hpp"
#include "chapters/apps/serve/loop/request_loop.hpp"
#include "chapters/models/encoders/fast_encoder.hpp"

namespace llm::serve {

class EmbeddingLoop final : public RequestLoop {
 public:
    // A batch has at most max_batch_tokens tokens, or one text. A request is rejected while
    // max_waiting others wait. The encoder and the metrics must outlive the loop.
    EmbeddingLoop(const models::FastEncoder& encoder, Pooling pooling,
                  std::size_t max_batch_tokens, std::size_t max_waiting, Metrics& metrics)
        : encoder_(encoder),
          pooling_(pooling),
          max_batch_tokens_(max_batch_tokens),
          max_waiting_(max_waiting),
          metrics_(metrics) {}

    // The vectors of the texts. keep_on is asked before each batch and every 20 ms of waiting;
    // none: it said no. Throws ServerBusy, and ServerStops after stop_accepting or cancel_all.
    std::optional<Matrix> embed(const std::vector<std::vector<Id>>& texts,
                                const std::function<bool()>& keep_on);  // N texts -> (N, C)

    std::size_t stop_accepting() override;
    std::size_t num_open() const override;
    std::size_t cancel_all() override;

 private:
    class Turns;
    void publish_state();  // with the mutex locked

    const models::FastEncoder& encoder_;
    Pooling pooling_;
    std::size_t max_batch_tokens_, max_waiting_;
    Metrics& metrics_;

    mutable std::mutex mutex_{};
    std::condition_variable changed_{};
    std::deque<const Turns*> queue_{};  // the first one computes
    bool accepts_ = true, cancels_ = false;
};

// The texts of each batch: those of similar length together, the shortest first.
std::vector<std::vector<std::size_t>> batches_by_length(
    const std::vector<std::vector<Id>>& texts, std::size_t max_tokens);

}  // namespace llm::serve
