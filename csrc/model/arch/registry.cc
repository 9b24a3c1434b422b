// Every family by its GGUF name. A new one: a file beside this one, its line here, its source in CMakeLists.txt.
#include "model/arch/registry.h"

#include <array>

#include "model/graph.h"

namespace les {

namespace {

struct Entry {
  const char* name;
  MakeGraphFn make;
};

constexpr std::array kFamilies = {
    Entry{"bailingmoe2", make_bailingmoe2},
    Entry{"deepseek", make_deepseek},
    Entry{"deepseek2", make_deepseek2},
    Entry{"ernie4_5-moe", make_ernie4_5_moe},
    Entry{"gemma4", make_gemma4},
    Entry{"glm4moe", make_glm4moe},
    Entry{"gpt-oss", make_gpt_oss},
    Entry{"granitehybrid", make_granitehybrid},
    Entry{"granitemoe", make_granitemoe},
    Entry{"hunyuan-moe", make_hunyuan_moe},
    Entry{"lfm2moe", make_lfm2moe},
    Entry{"llama", make_llama},
    Entry{"minimax-m2", make_minimax_m2},
    Entry{"nemotron_h_moe", make_nemotron_h_moe},
    Entry{"olmoe", make_olmoe},
    Entry{"phimoe", make_phimoe},
    Entry{"qwen2", make_qwen2moe},
    Entry{"qwen2moe", make_qwen2moe},
    Entry{"qwen3", make_qwen3moe},
    Entry{"qwen35", make_qwen35moe},
    Entry{"qwen35moe", make_qwen35moe},
    Entry{"qwen3moe", make_qwen3moe},
    Entry{"qwen3next", make_qwen3next},
    Entry{"smallthinker", make_smallthinker},
};

}  // namespace

Result<std::unique_ptr<ModelGraph>> make_graph(const ModelConfig& config) {
  for (const Entry& entry : kFamilies) {
    if (config.arch == entry.name) return entry.make(config);
  }
  std::string known;
  for (const Entry& entry : kFamilies) known += std::string(known.empty() ? "" : ", ") + entry.name;
  return make_error(Code::kUnsupported, "model family '%s' is not supported; known: %s", config.arch.c_str(),
                    known.c_str());
}

}  // namespace les
