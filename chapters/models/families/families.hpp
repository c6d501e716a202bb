// The families, in the order in which messages list them.
#pragma once

#include "chapters/models/family.hpp"

namespace llm::models {

const Family& llama_family();
const Family& qwen2_family();
const Family& qwen3_family();
const Family& gpt2_family();
const Family& mistral_family();
const Family& gemma_family();
const Family& gemma2_family();
const Family& gemma3_family();
const Family& smollm3_family();
const Family& granite_family();
const Family& olmo2_family();
const Family& phi3_family();
const Family& cohere2_family();
const Family& mixtral_family();
const Family& qwen3_moe_family();
const Family& gpt_oss_family();
const Family& llama4_family();
const Family& deepseek_v2_family();
const Family& deepseek_v3_family();
const Family& qwen3_next_family();
const Family& starcoder2_family();
const Family& glm4_family();
const Family& lfm2_family();
const Family& lfm2_moe_family();
const Family& olmo3_family();
const Family& ministral3_family();
const Family& qwen3_5_family();
const Family& qwen3_5_moe_family();
const Family& granite_swa_family();
const Family& glm4_moe_lite_family();

}  // namespace llm::models
