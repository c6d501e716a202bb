#include "chapters/11_generation/generation.hpp"

namespace llm {

IdMatrix one_sequence(std::span<const Id> ids) {
    IdMatrix batch(std::array{std::size_t{1}, ids.size()});
    std::copy(ids.begin(), ids.end(), batch.begin());
    return batch;
}

Vector last_logits(const ModelOutput& output) {
    const auto [batch_size, seq_len, vocab_size] = dims(output.logits);
    require(batch_size > 0 && seq_len > 0, "generate: there are no logits in {}",
            output.logits.shape());
    return xt::view(output.logits, 0, seq_len - 1);
}

std::vector<Id> shift_context(const std::vector<Id>& context) {
    require(context.size() >= 4, "generate: a context of {} tokens is too short to be shifted",
            context.size());
    std::vector<Id> kept = {context.front()};
    kept.insert(kept.end(), context.end() - std::ptrdiff_t(context.size() / 2), context.end());
    return kept;
}

template std::vector<Id> generate(const Model& model, const std::vector<Id>& prompt_ids,
                                  const GenerationConfig& config, Generator& generator,
                                  const std::function<void(Id)>& on_token);

}  // namespace llm
