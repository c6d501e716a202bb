#include "chapters/models/llama/settings_lists.hpp"

#include <algorithm>

namespace llm::models {
namespace {

// The words of a text.
std::set<std::string> names_in(const std::string& text) {
    std::set<std::string> names;
    std::size_t begin = text.find_first_not_of(" \n");
    while (begin != text.npos) {
        const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
        names.insert(text.substr(begin, end - begin));
        begin = text.find_first_not_of(" \n", end);
    }
    return names;
}

}  // namespace

// The fields of PretrainedConfig (transformers 2 to 5.10), and what libraries, trainers and
// published files add to them.
const std::set<std::string> bookkeeping_settings = names_in(R"(
architectures attn_implementation attribute_map audio_config auto_map aux_loss_alpha
bad_words_ids base_config_key base_model_ep_plan base_model_fsdp_plan base_model_pp_plan
base_model_sp_plan base_model_tp_plan begin_suppress_tokens cache_implementation
chunk_size_feed_forward classifier_bias compression_config configuration_files
cross_attention_hidden_size custom_pipelines default_theta diversity_penalty do_sample dtype
early_stopping embd_layer encoder_no_repeat_ngram_size ep_size experts_implementation
exponential_decay_length_penalty finetuning_task for_llm_compressor gradient_checkpointing
has_no_defaults_at_init id2label ignore_keys_at_rope_validation img_processor
initial_context_length initializer_factor initializer_range is_composition is_decoder
is_llama_config keys_to_ignore_at_inference label2id length_penalty max_length max_new_tokens
max_seq_length max_sequence_length max_window_layers min_length mm_tokens_per_image
model_max_length model_type n_special name_or_path neftune_noise_alpha no_repeat_ngram_size
num_beam_groups num_beams num_labels num_logits_to_keep num_return_sequences output_attentions
output_hidden_states output_past output_router_logits output_scores predict_special_tokens
prefix pretrained_config_archive_map pretraining_tp problem_type quantization
quantization_config remove_invalid_values reorder_and_upcast_attn repetition_penalty
return_dict return_dict_in_generate router_aux_loss_coef router_dtype router_jitter_noise
router_z_loss_coef seq_aux seq_length softmax_in_fp32 sub_configs summary_activation
summary_proj_to_labels summary_type summary_use_proj suppress_tokens task_specific_params
temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype
torchscript transformers.js_config transformers_version transformers_weights typical_p
unsloth_fixed unsloth_tag unsloth_version use_bfloat16 use_cache use_flash_attention
use_flash_attn use_loss_mask use_return_dict vision_config vocab_file xla_device z_loss_coef
)");

const std::map<std::string, Json> neutral_values = {{"add_cross_attention", false},
                                                    {"attn_scale", 1},
                                                    {"embedding_multiplier", 1},
                                                    {"attention_scale", 1},
                                                    {"causal", true},
                                                    {"causal_attn", true},
                                                    {"is_causal", true},
                                                    {"use_mla", true},
                                                    {"use_rmsnorm", true},
                                                    {"use_rotary_pos_emb", true},
                                                    {"do_layer_norm_before", true},
                                                    {"logit_scale", 1},
                                                    {"logits_scaling", 1},
                                                    {"partial_rotary_factor", 1},
                                                    {"residual_multiplier", 1},
                                                    {"rope_interleaved", false},
                                                    {"rotary", true},
                                                    {"rotary_pct", 1},
                                                    {"position_embedding_type", "rope"},
                                                    {"scale_attn_weights", true},
                                                    {"scale_emb", 1},
                                                    {"use_gated_activation", true},
                                                    {"use_parallel_embedding", true}};

const std::vector<std::set<std::string>> spellings = {
    {"hidden_size", "n_embd", "d_model", "dim", "embed_dim"},
    {"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
    {"num_attention_heads", "n_head", "n_heads", "num_heads"},
    {"num_key_value_heads", "n_kv_heads", "num_kv_heads", "n_head_kv"},
    {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"},
    {"max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"},
    {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps"},
    {"hidden_act", "hidden_activation", "activation_function"},
    {"num_experts", "num_local_experts", "n_routed_experts"},
    {"num_experts_per_tok", "experts_per_token"},
    {"rope_theta", "rotary_emb_base", "rope_embedding_base"},
    {"sliding_window_pattern", "_sliding_window_pattern"},
    {"sliding_window", "sliding_window_size"},
    {"head_dim", "attention_head_size", "qk_rope_head_dim"},
    {"vocab_size", "padded_vocab_size"}};

// The settings that change the logits in the configuration classes of the decoders of
// transformers (5.10.0.dev0 and the main branch of 2026), and in a few of models that bring
// their own code.
const std::set<std::string> published_settings = names_in(R"(
activation activation_function activation_sparsity_pattern activation_type adapter_rank
adapters add_bias_linear add_cross_attention add_out_norm add_qkv_bias afn alibi
alibi_bias_max altup_active_idx altup_correct_scale altup_num_inputs
apply_residual_connection_post_layernorm attention_bias attention_chunk_size
attention_head_dim attention_head_size attention_heads attention_hidden_size
attention_in_multiplier attention_k_eq_v attention_layer_norm attention_layer_norm_with_affine
attention_layers attention_multiplier attention_out_bias attention_out_multiplier
attention_types attention_window_size attn_config attn_layer_indices attn_layer_offset
attn_layer_period attn_layers attn_logit_softcapping attn_output_gate attn_output_multiplier
attn_scale attn_temperature_tuning attn_type axial_pos_embds axial_pos_embds_dim
axial_pos_shape base_seqlen bias bias_for_layer_norm block_auto_adjust_ff_dim block_configs
block_ff_dim block_ffn_dim_multiplier block_multiple_of block_size block_type block_types
blocksparse_block_size blocksparse_homo_head_pattern blocksparse_num_local_blocks
blocksparse_vert_stride capacity_factor causal causal_attn cca_time0 cca_time1
cla_share_factor clamp_len clip_qkv compress_rate_csa compress_rate_hca compress_rates
compress_ratios compress_rope_theta conv1d_width conv_L_cache conv_bias conv_kernel
cross_attention_layers cross_attn_all_layers cross_attn_k d_head d_inner d_model
decoder_attention_heads decoder_config decoder_ffn_dim decoder_layers decoder_sparse_step
default_compress_rates default_num_hash_layers default_partial_rotary_factor
dense_attention_every_n_layers dense_intermediate_size dff dim_model_base do_layer_norm_before
embed_layernorm embedding_dim embedding_multiplier embedding_multiplier_scale enable_bias
enable_moe_block encoder_config encoder_cross_output_size encoder_hash_byte_group_nb_functions
encoder_hash_byte_group_size encoder_hash_byte_group_vocab eps expand expansion_ratio
expert_ffn_hidden_size expert_layer_offset expert_layer_period expert_selection_fn fc_type
feed_forward_size ff_activation ff_dim_multiplier ff_intermediate_size ffn_act_fn ffn_config
ffn_dim ffn_hidden_size ffn_proj_factor ffn_round_up_to_multiple_of final_logit_softcapping
first_k_dense_replace floor_scale full_attention_interval full_attn_alpha_factor
full_attn_beta_factor full_attn_idxs full_attn_mod gate_soft_cap gegelu_limit
global_attn_every_n_layers global_config global_head_dim hash_seed hc_eps hc_mult
hc_sinkhorn_iters head_dim hidden_act hidden_activation hidden_mamba_act hidden_size
hidden_size_global hidden_size_per_layer_input hybrid_layer_ids hybrid_override_pattern
include_bias index_block_size index_head_dim index_local_blocks index_n_heads
index_skip_topk_offset index_topk index_topk_blocks index_topk_freq index_topk_pattern
indexer_types inner_hidden_size interleave_moe_layer_step interleaved_qkv
intermediate_multiple_size intermediate_size intermediate_size_mlp interpolate_factor
is_causal is_encoder_decoder is_moe keep_window_size key_multiplier kv_channels kv_lora_rank
kv_n_heads laurel_rank layer_norm_elementwise_affine layer_norm_eps layer_norm_epsilon
layer_norm_type layer_norm_with_affine layer_rope_theta layer_types layernorm_embedding
layernorm_epsilon layers_block_type learned_pos_emb linear_allow_neg_eigval linear_attn_alpha_factor
linear_attn_beta_factor linear_attn_config linear_conv_kernel_dim linear_key_head_dim
linear_num_key_heads linear_num_value_heads linear_value_head_dim lm_head_bias
lm_head_multiplier local_attn_chunk_length local_num_chunks_after local_num_chunks_before
logit_scale logits_scaling logits_soft_cap logn lru_width lsh_attn_chunk_length
lsh_num_chunks_after lsh_num_chunks_before mamba_conv_bias mamba_d_conv mamba_d_head
mamba_d_ssm mamba_d_state mamba_dt_limit mamba_dt_min mamba_dt_rank mamba_expand
mamba_head_dim mamba_headdim mamba_hidden_act mamba_n_groups mamba_n_heads mamba_ngroups
mamba_norm_before_gate mamba_num_heads mamba_proj_bias mamba_rms_norm max_attn_value
max_patch_length max_position_embeddings mb_per_layer mixer_rms_eps mla_use_nope
mlp_alpha_factor mlp_beta_factor mlp_bias mlp_hidden_act mlp_hidden_size mlp_layer_types
mlp_multipliers mlp_only_layers mlp_ratio moe_eval_capacity_factor moe_intermediate_size moe_k
moe_latent_size moe_layer_end_index moe_layer_freq moe_layer_interval moe_layer_num_skipped
moe_layer_start_index moe_layers moe_layers_enum moe_min_capacity moe_norm_min
moe_normalize_expert_weights moe_num_experts moe_num_shared_experts moe_renormalize
moe_router_activation_func moe_router_enable_expert_bias moe_router_topk_scaling_factor
moe_router_use_expert_group moe_shared_expert_intermediate_size moe_token_dropping moe_top_k
moe_topk multi_query multi_query_attention multi_query_group_num mup_attn_multiplier
mup_denominator mup_embedding_multiplier mup_enabled mup_use_scaling mup_width_multiplier
n_embd n_embed n_group n_groups n_head n_head_kv n_heads n_inner n_layer n_layers
n_mamba_heads n_positions n_routed_experts n_shared_experts n_token new_decoder_architecture
no_bias no_rope_layer_interval no_rope_layers norm_eps norm_epsilon norm_head norm_softmax
norm_topk_prob norm_type num_attention_groups num_attention_heads num_blocks num_buckets
num_dense_layers num_expert_group num_experts num_experts_per_tok num_experts_per_token
num_global_key_value_heads num_hash_layers num_hashes num_heads num_hidden_layers
num_key_value_heads num_key_value_heads_per_layer num_kv_heads num_kv_shared_layers num_layers
num_ln_in_parallel_attn num_local_experts num_mem_blocks num_query_groups num_shared_expert
num_shared_experts o_groups o_lora_rank original_max_position_embeddings original_rope
output_logit_soft_cap output_multiplier_scale padded_vocab_size parallel_attn
parallel_attn_mlp_res partial_rotary_factor patch_in_forward patch_size patcher_config
patching_mode patching_threshold per_layer_config position_embedding_type position_encoding_2d
post_layer_norm pre_seq_len prefix_dense_intermediate_size prefix_dense_sliding_window_pattern
prefix_lm prefix_projection projectors_bias pruned_heads q_lora_rank qk_dim_factor qk_head_dim
qk_layernorm qk_ln qk_nope_head_dim qk_rope_head_dim qkv_bias query_pre_attn_scalar
residual_multiplier rms_norm rms_norm_eps rmsnorm rope rope_embedding_base rope_interleave
rope_local_base_freq rope_parameters rope_pct rope_position_scale rope_ratio rope_scaling
rope_theta rotary rotary_dim rotary_emb_base rotary_ndims rotary_pct route_scale
routed_scaling_factor router_hidden_size router_logit_softcapping same_length
scale_attn_by_inverse_layer_idx scale_attn_weights scale_depth scale_emb scale_embedding
scale_logits scoring_func share_expert_dim share_q_dim shared_expert_combination_strategy
shared_expert_intermediate_size shared_intermediate_size sliding_window sliding_window_pattern
softmax_scale sparse_attention_config sparse_config ssm_in_multiplier ssm_multipliers
ssm_out_multiplier ssm_state_size state_size swiglu_alpha swiglu_limit tie_embedding
tie_word_embeddings time_step_limit time_step_min time_step_rank top_k_experts topk_group
topk_method use_RMSNorm use_bias use_bidirectional_attention use_cla use_conv_bias
use_double_wide_mlp use_dynamic_ntk use_expert_bias use_grouped_topk
use_learned_position_embeddings use_lf_gate use_logn_attn use_long_context use_mem_rope
use_mixed_mlp_moe use_mla use_mlp_bias use_parallel_residual use_post_norm use_qk_norm
use_qkv_bias use_rmsnorm use_rotary_pos_emb use_shared_attention_adapter use_sliding_window
v_dim_factor v_head_dim vocab_size vocab_size_per_layer_input weight_mode weight_tying
window_size word_embed_proj_dim zero_expert_num
)");

}  // namespace llm::models
