/* Streams a reply:  generate MODEL PROMPT [MEMORY_MIB [MAX_TOKENS [SEED]]]
 * Models whose vocabulary has ChatML's tokens are asked as in a chat; others continue the prompt. Ctrl-C stops the
 * reply. Seed 0 gives another reply each time; without a seed the likeliest token is always chosen. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "les.h"

static volatile sig_atomic_t stopped = 0;
static void on_signal(int number) {
  (void)number;
  stopped = 1;
}

static void check(les_status status) {
  if (status == LES_OK) return;
  fprintf(stderr, "generate: %s: %s\n", les_status_name(status), les_error_message());
  exit(1);
}

static void on_log(void* user_data, const char* line) {
  (void)user_data;
  fprintf(stderr, "%s\n", line);
}

typedef struct token_list {
  int32_t* ids;
  size_t n;
} token_list;

/* Only the template's own words may become control tokens (LES_ENCODE_MARKUP), so the user's text is encoded apart. */
static void append(token_list* list, const les_tokenizer* tokenizer, const char* text, uint32_t flags) {
  size_t n = 0;
  check(les_tokenizer_encode(tokenizer, text, strlen(text), flags, NULL, 0, &n));
  list->ids = realloc(list->ids, (list->n + n + 1) * sizeof(int32_t));
  if (list->ids == NULL) exit(1);
  check(les_tokenizer_encode(tokenizer, text, strlen(text), flags, list->ids + list->n, n + 1, &n));
  list->n += n;
}

static token_list make_prompt(const les_tokenizer* tokenizer, const char* text) {
  token_list list = {NULL, 0};
  int32_t token;
  if (les_tokenizer_find(tokenizer, "<|im_start|>", &token) == LES_OK) {
    append(&list, tokenizer, "<|im_start|>user\n", LES_ENCODE_MARKUP);
    append(&list, tokenizer, text, 0);
    append(&list, tokenizer, "<|im_end|>\n<|im_start|>assistant\n", LES_ENCODE_MARKUP);
  } else {
    append(&list, tokenizer, text, LES_ENCODE_SPECIAL);
  }
  return list;
}

int main(int argc, char** argv) {
  les_options options;
  les_sampler_options sampling;
  les_model* model;
  les_tokenizer* tokenizer;
  les_detokenizer* detokenizer;
  les_session* session;
  les_sampler* sampler;
  les_stats stats;
  token_list prompt;
  const char* text;
  size_t n_bytes;
  long max_tokens = argc > 4 ? atol(argv[4]) : 200;
  if (argc < 3) {
    fprintf(stderr, "usage: generate MODEL PROMPT [MEMORY_MIB [MAX_TOKENS [SEED]]]\n");
    return 2;
  }
  check(les_options_init(&options, sizeof(options)));
  if (argc > 3) options.memory_bytes = strtoull(argv[3], NULL, 10) << 20;
  options.log = on_log;
  check(les_sampler_options_init(&sampling, sizeof(sampling)));
  if (argc > 5) {
    sampling.seed = strtoull(argv[5], NULL, 10);
  } else {
    sampling.temperature = 0;
  }

  check(les_model_open(argv[1], &options, &model));
  check(les_model_tokenizer(model, &tokenizer));
  check(les_detokenizer_new(tokenizer, 0, &detokenizer));
  check(les_session_new(model, &session));
  check(les_sampler_new(&sampling, &sampler));
  signal(SIGINT, on_signal);

  prompt = make_prompt(tokenizer, argv[2]);
  check(les_session_eval(session, prompt.ids, prompt.n));
  while (max_tokens-- > 0 && !stopped) {
    const float* logits;
    size_t n_vocab;
    int32_t token;
    les_status status;
    check(les_session_logits(session, &logits, &n_vocab));
    check(les_sampler_choose(sampler, logits, n_vocab, &token));
    if (les_tokenizer_is_end(tokenizer, token)) break;
    check(les_detokenizer_add(detokenizer, token, &text, &n_bytes));
    fwrite(text, 1, n_bytes, stdout);
    fflush(stdout);
    status = les_session_eval(session, &token, 1);
    if (status == LES_CONTEXT_FULL) break;
    check(status);
  }
  check(les_detokenizer_finish(detokenizer, &text, &n_bytes));
  fwrite(text, 1, n_bytes, stdout);
  printf("\n");

  check(les_model_stats(model, &stats, sizeof(stats)));
  fprintf(stderr, "%lu tokens; %.1f MB read from flash; %.1f MB in memory at most\n",
          (unsigned long)(stats.prefill_tokens + stats.decode_tokens), (double)stats.flash_bytes / 1e6,
          (double)stats.peak_bytes / 1e6);
  free(prompt.ids);
  les_sampler_free(sampler);
  les_session_free(session);
  les_detokenizer_free(detokenizer);
  les_tokenizer_free(tokenizer);
  les_model_free(model);
  return 0;
}
