// The families' factories, one for each file in this folder.
#pragma once

#include <memory>

#include "model/config.h"

namespace les {

class ModelGraph;

std::unique_ptr<ModelGraph> make_bailingmoe2(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_deepseek(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_deepseek2(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_ernie4_5_moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_gemma4(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_glm4moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_gpt_oss(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_granitehybrid(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_granitemoe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_hunyuan_moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_lfm2moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_llama(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_minimax_m2(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_nemotron_h_moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_olmoe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_phimoe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_qwen2moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_qwen35moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_qwen3moe(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_qwen3next(const ModelConfig& config);
std::unique_ptr<ModelGraph> make_smallthinker(const ModelConfig& config);

}  // namespace les
