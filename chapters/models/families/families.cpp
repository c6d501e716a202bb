// To add a family, write a file such as starcoder2.cpp, declare its function in families.hpp,
// and list it here: docs/contributing.md.
#include "chapters/models/families/families.hpp"

namespace llm::models {

const std::vector<const Family*>& families() {
    static const std::vector<const Family*> all = {
        &llama_family(),       &qwen2_family(),       &qwen3_family(),
        &gpt2_family(),        &mistral_family(),     &gemma_family(),
        &gemma2_family(),      &gemma3_family(),      &smollm3_family(),
        &granite_family(),     &olmo2_family(),       &phi3_family(),
        &cohere2_family(),     &mixtral_family(),     &qwen3_moe_family(),
        &gpt_oss_family(),     &llama4_family(),      &deepseek_v2_family(),
        &deepseek_v3_family(), &qwen3_next_family(),  &starcoder2_family(),
        &glm4_family(),        &lfm2_family(),        &lfm2_moe_family(),
        &olmo3_family(),       &ministral3_family(),  &qwen3_5_family(),
        &qwen3_5_moe_family(), &granite_swa_family(), &glm4_moe_lite_family()};
    return all;
}

}  // namespace llm::models
