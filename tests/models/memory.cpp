// What the forward passes of all models allocate.
#include <atomic>
#include <cstdlib>
#include <new>

#include "chapters/15_fast/matmul.hpp"
#include "chapters/18_experts/moe_training.hpp"
#include "chapters/experiments/ablation_model.hpp"
#include "chapters/models/family_checkpoint.hpp"
#include "tests/support/check.hpp"
#include "tests/support/files.hpp"
#include "tests/support/small_model.hpp"

using namespace llm;
using namespace llm::models;

namespace {

std::atomic<std::size_t> largest_allocation{0};

}  // namespace

// Tensors get their memory from this operator.
void* operator new(std::size_t size, std::align_val_t alignment) {
    std::size_t largest = largest_allocation;
    while (size > largest && !largest_allocation.compare_exchange_weak(largest, size)) {
    }
    const std::size_t step = static_cast<std::size_t>(alignment);
    if (void* const memory = std::aligned_alloc(step, (size + step - 1) / step * step))
        return memory;
    throw std::bad_alloc();
}
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

namespace {

constexpr std::size_t vocab_size = 5000;
const IdMatrix one_token{{4999}};

// Whether a forward pass of one token allocates less than an LM head takes.
template <class Forward>
bool copies_no_head(std::size_t hidden_size, const Forward& forward) {
    largest_allocation = 0;
    const Tensor3 logits = forward();
    REQUIRE(logits.shape() == std::array<std::size_t, 3>{1, 1, vocab_size});
    REQUIRE(largest_allocation >= vocab_size * sizeof(Real));
    return largest_allocation < hidden_size * vocab_size * sizeof(Real);
}

}  // namespace

TEST_CASE("no forward pass copies the LM head") {
    Generator generator(1);
    for (const bool tied : {false, true}) {
        CAPTURE(tied);
        Config config = small_config();
        config.vocab_size = vocab_size;
        config.tie_word_embeddings = tied;
        const std::size_t C = config.hidden_size;
        const Model model = make_model(config, generator);
        CHECK(copies_no_head(C, [&] { return model(one_token); }));
        CHECK(copies_no_head(C, [&] { return forward_with(matmul_blas, model, one_token); }));

        FamilyModel gemma = load_family_model(fixture_path("17_long_context/gemma2"));
        const std::size_t width = gemma.config.hidden_size;
        gemma.config.vocab_size = vocab_size;
        gemma.embed_tokens = randn({vocab_size, width}, generator);
        if (!tied) gemma.lm_head = randn({vocab_size, width}, generator);
        CHECK(copies_no_head(width, [&] { return gemma(one_token); }));

        FamilyModel moe = load_family_model(fixture_path("18_experts/mixtral"));
        const std::size_t hidden_size = moe.config.hidden_size;
        moe.config.vocab_size = vocab_size;
        moe.embed_tokens = randn({vocab_size, hidden_size}, generator);
        moe.lm_head = std::nullopt;
        if (!tied) moe.lm_head = randn({vocab_size, hidden_size}, generator);
        CHECK(copies_no_head(hidden_size, [&] { return moe(one_token); }));
        const MoeDecoder decoder =
            make_moe_decoder(config, {4, 2, 6, 0}, SoftmaxRouting{}, generator);
        CHECK(copies_no_head(C, [&] { return decoder(one_token); }));
        const PatternDecoder windowed = make_pattern_decoder(model, false);
        CHECK(copies_no_head(C, [&] { return windowed(one_token); }));
    }
}
