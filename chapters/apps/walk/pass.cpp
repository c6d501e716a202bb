#include "chapters/apps/walk/pass.hpp"

#include "chapters/11_generation/generation.hpp"
#include "chapters/11_generation/words.hpp"

namespace llm::walk {

Pass run(const Walk& walk) {
    const Model& model = walk.model;
    Pass pass;
    std::vector<Id> ids = walk.tokenizer.encode(walk.text);
    require(ids.size() >= 2 && ids.size() <= 8, "--prompt takes 2 to 8 tokens, not {}",
            ids.size());
    ids.resize(std::min(ids.size(), walk.max_length));
    pass.ids = one_sequence(ids);
    for (const Id id : ids) pass.words.push_back(word_of(walk.tokenizer, id));
    pass.embeddings = model.embed(pass.ids);
    pass.inputs = causal_attention_inputs(model.rotary_table(ids.size()), 1, ids.size());

    Tensor3 stream = pass.embeddings;
    for (std::size_t n = 0; n < model.layers.size(); ++n) {
        const PreNormBlock& block = model.layers[n];
        pass.streams.push_back(stream);
        const Tensor3 normalized = block.attention_norm(stream);
        const auto [attention_output, weights] = block.self_attn(normalized, pass.inputs);
        const Tensor3 after_attention = stream + attention_output;
        pass.between.push_back(after_attention);
        if (n == walk.layer) {
            pass.attention_input = normalized;
            pass.attention_output = attention_output;
            pass.projected = project_qkv(block.self_attn, normalized);
            pass.rotated =
                apply_qk_norm_and_rope(block.self_attn.qk_norm, pass.projected, pass.inputs);
            const std::size_t group =
                block.self_attn.num_attention_heads / block.self_attn.num_key_value_heads;
            pass.head = attention(head_of(pass.rotated.queries, 0, walk.head),
                                  head_of(pass.rotated.keys, 0, walk.head / group),
                                  head_of(pass.rotated.values, 0, walk.head / group),
                                  head_of(pass.inputs.attention_mask, 0, 0));
        }
        stream = block(stream, pass.inputs).hidden_states;
    }
    pass.streams.push_back(stream);
    return pass;
}

}  // namespace llm::walk
