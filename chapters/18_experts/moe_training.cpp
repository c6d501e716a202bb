#include "chapters/18_experts/moe_training.hpp"

#include "chapters/12_gradients/loss.hpp"
#include "chapters/13_training/training_loop.hpp"

namespace llm {
namespace {

std::vector<MixtureOfExperts*> moe_layers_of(MoeDecoder& decoder) {
    std::vector<MixtureOfExperts*> moe_layers;
    for (MoeBlock& layer : decoder.layers)
        if (auto* moe = std::get_if<MixtureOfExperts>(&layer.mlp)) moe_layers.push_back(moe);
    return moe_layers;
}

Linear random_linear(std::size_t in, std::size_t out, Generator& generator) {
    return {randn({out, in}, generator) * Real(0.02), std::nullopt};
}
GatedMlp random_mlp(std::size_t hidden_size, std::size_t intermediate_size,
                    std::size_t num_hidden_layers, Generator& generator) {
    return {random_linear(hidden_size, intermediate_size, generator),
            random_linear(hidden_size, intermediate_size, generator),
            scale_for_depth(random_linear(intermediate_size, hidden_size, generator),
                            num_hidden_layers)};
}

MixtureOfExperts random_moe(std::size_t hidden_size, std::size_t num_hidden_layers,
                            const ExpertSizes& sizes, const Routing& routing,
                            Generator& generator) {
    const std::size_t F = sizes.moe_intermediate_size;
    MixtureOfExperts moe{random_linear(hidden_size, sizes.num_experts, generator),
                         {},
                         std::nullopt,
                         sizes.num_experts_per_tok,
                         routing};
    for (std::size_t e = 0; e < sizes.num_experts; ++e)
        moe.experts.push_back(random_mlp(hidden_size, F, num_hidden_layers, generator));
    if (sizes.n_shared_experts > 0)
        moe.shared =
            random_mlp(hidden_size, sizes.n_shared_experts * F, num_hidden_layers, generator);
    return moe;
}

}  // namespace

MoeDecoder make_moe_decoder(const Config& config, const ExpertSizes& sizes,
                            const Routing& routing, Generator& generator) {
    const Model model = make_model_for_training(config, generator);
    const std::size_t C = model.config.hidden_size, L = model.config.num_hidden_layers;
    return with_layers(model, [&](const PreNormBlock& layer) {
        MoeBlock block{
            make_pattern_attention(layer.self_attn, model.config.head_dim, FullAttention{}),
            layer.mlp, layer.attention_norm, layer.ffn_norm, layer.residual_multiplier};
        if (sizes.num_experts > 0) block.mlp = random_moe(C, L, sizes, routing, generator);
        return block;
    });
}

MoeRun train_moe(MoeDecoder& decoder, const TrainingArguments& args,
                 const BalanceArguments& balance, const std::vector<Id>& tokens,
                 Generator& generator) {
    const std::vector<MixtureOfExperts*> moe_layers = moe_layers_of(decoder);
    MoeRun run;
    std::size_t num_choices = 0, num_dropped = 0;
    run.losses = run_training_loop<MoeDecoder>(decoder, args, [&](MoeDecoder& gradient) {
        const Batch batch = random_batch(tokens, args.batch_size, args.seq_len, generator);
        MoeLoss loss =
            forward_backward(decoder, batch.input_ids, batch.targets, balance, gradient);

        // Balance without a loss: the bias of DeepSeek-V3 follows the load.
        for (std::size_t n = 0; n < moe_layers.size(); ++n)
            if (auto* sigmoid = std::get_if<SigmoidRouting>(&moe_layers[n]->routing))
                update_correction_bias(sigmoid->e_score_correction_bias, loss.load[n],
                                       balance.bias_update_rate);
        run.load.push_back(std::move(loss.load));
        num_choices += loss.num_choices;
        num_dropped += loss.num_dropped;
        return loss.cross_entropy;
    });
    if (num_choices > 0) run.dropped = double(num_dropped) / double(num_choices);
    return run;
}

double mean_cross_entropy(const MoeDecoder& decoder, const std::vector<Batch>& batches) {
    return mean_loss(batches, [&](const Batch& batch) {
        return cross_entropy(decoder(batch.input_ids), batch.targets);
    });
}

}  // namespace llm
