#include "chapters/24_parallel/demo/small_run.hpp"

#include <cmath>

namespace llm {
namespace {

const std::string text =
    "the cat sat on the mat. the dog sat on the cat. the cat ran. the dog ran to the mat. ";
constexpr std::size_t batch_size = 5;

}  // namespace

SmallRun small_run(std::uint32_t seed) {
    Config config = mini_llm_config();
    config.hidden_size = 32;
    config.intermediate_size = 64;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.vocab_size = 28;  // a to z, space and full stop
    Generator generator(seed);
    SmallRun run{make_model_for_training(config, generator), {}, {}};
    run.args.batch_size = batch_size;
    run.args.seq_len = 8;
    run.args.seed = seed;
    run.args.max_grad_norm = 0.5;
    run.args.lr_schedule = {Real(0.01), Real(0.001), 2, 10};
    for (const char letter : text)
        run.tokens.push_back(letter == ' ' ? 26 : letter == '.' ? 27 : letter - 'a');
    return run;
}

std::string letters(const IdMatrix& ids, std::size_t row) {
    std::string result;
    for (std::size_t t = 0; t < ids.shape(1); ++t)
        result += ids(row, t) == 26   ? '_'
                  : ids(row, t) == 27 ? '.'
                                      : static_cast<char>('a' + ids(row, t));
    return result;
}

std::string small_difference(double difference) {
    return difference < 1e-5 ? "< 0.00001" : "more";
}

double largest_difference(Model a, Model b) {
    const std::vector<Parameter> of_a = named_parameters(a), of_b = named_parameters(b);
    double largest = 0;
    for (std::size_t p = 0; p < of_a.size(); ++p)
        for (std::size_t i = 0; i < of_a[p].values.size(); ++i)
            largest = std::max(largest,
                               std::abs(double(of_a[p].values[i]) - double(of_b[p].values[i])));
    return largest;
}

}  // namespace llm
