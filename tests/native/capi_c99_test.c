/* les.h in strict C99, over the shared library: a whole generation, twice, and what goes wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "les.h"

static int n_failed = 0;
#define CHECK(condition)                                                                  \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      printf("line %d: %s; last error: %s\n", __LINE__, #condition, les_error_message()); \
      ++n_failed;                                                                         \
    }                                                                                     \
  } while (0)

enum { N_PROMPT = 6, N_TOKENS = 20 };

static void generate(const char* path, uint64_t memory_bytes, int32_t* out) {
  const int32_t prompt[N_PROMPT] = {5, 17, 101, 33, 250, 7};
  les_options options;
  les_sampler_options sampling;
  les_model* model = NULL;
  les_session* session = NULL;
  les_sampler* sampler = NULL;
  const float* logits = NULL;
  size_t n_vocab = 0;
  int i;
  CHECK(les_options_init(&options, sizeof(options)) == LES_OK);
  CHECK(les_sampler_options_init(&sampling, sizeof(sampling)) == LES_OK);
  options.memory_bytes = memory_bytes;
  options.context = 64;
  sampling.seed = 11;
  CHECK(les_model_open(path, &options, &model) == LES_OK);
  CHECK(les_session_new(model, &session) == LES_OK);
  CHECK(les_sampler_new(&sampling, &sampler) == LES_OK);
  CHECK(les_session_eval(session, prompt, N_PROMPT) == LES_OK);
  for (i = 0; i < N_TOKENS && n_failed == 0; ++i) {
    CHECK(les_session_logits(session, &logits, &n_vocab) == LES_OK);
    CHECK(les_sampler_choose(sampler, logits, n_vocab, &out[i]) == LES_OK);
    CHECK(les_session_eval(session, &out[i], 1) == LES_OK);
  }
  CHECK(les_session_position(session) == N_PROMPT + N_TOKENS);
  les_model_free(model);
  les_sampler_free(sampler);
  les_session_free(session);
}

int main(void) {
  const char* shared = getenv("LES_SHARED");
  char path[1024];
  int32_t resident[N_TOKENS] = {0}, streamed[N_TOKENS] = {0};
  les_options options;
  les_plan plan;
  les_model* model = NULL;
  FILE* file;
  CHECK(les_api_version() == LES_API_VERSION);
  CHECK(les_model_open("/no/such/file", NULL, &model) == LES_NOT_FOUND);
  CHECK(strstr(les_error_message(), "/no/such/file") != NULL);

  sprintf(path, "%.900s/goldens/qwen3moe/model.gguf", shared != NULL ? shared : LES_SOURCE_DIR "/../shared");
  file = fopen(path, "rb");
  if (file == NULL) {
    printf("skipped: no %s; set LES_SHARED\n", path);
    return n_failed == 0 ? 77 : 1;
  }
  fclose(file);
  CHECK(les_options_init(&options, sizeof(options)) == LES_OK);
  options.context = 64;
  CHECK(les_plan_memory(path, &options, &plan, sizeof(plan)) == LES_OK);
  options.memory_bytes = plan.floor_bytes - 1;
  CHECK(les_model_open(path, &options, &model) == LES_BUDGET);
  CHECK(model == NULL);
  generate(path, 0, resident);
  generate(path, plan.floor_bytes, streamed);
  CHECK(memcmp(resident, streamed, sizeof(resident)) == 0);
  return n_failed == 0 ? 0 : 1;
}
