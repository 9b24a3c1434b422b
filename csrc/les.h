/* les: runs Mixture-of-Experts language models larger than memory, from C. Plain C99; needs no other header of les.
 *
 * Conventions
 *   Errors     Functions that can fail return a les_status. On failure les_error_message() has one line for people; it
 *              belongs to the calling thread and holds until that thread's next failure. Results are written on success
 *              only (sizes also with LES_BUFFER_TOO_SMALL). A failed call leaves its handle usable. Nothing of les
 * prints, exits, raises a signal or lets a C++ exception out. Ownership  What a ..._open or ..._new gives is freed by
 * the ..._free of its kind, once, in any order: a session, a tokenizer or a detokenizer keeps what it needs of its
 * model. ..._free(NULL) does nothing. A pointer that a function hands out belongs to the handle; its comment says how
 * long it holds. Arguments are copied where they are needed after the call. Threads    A les_model and a les_tokenizer
 * may be used by any number of threads at once (sessions of one model take turns). A les_session, les_detokenizer or
 * les_sampler is for one thread at a time, but for les_session_cancel. No thread may still use a handle when it is
 * freed. Text       UTF-8, in and out. Paths and keys end with a NUL. Texts come with their length in bytes and may
 * hold NULs; those written into a buffer get a NUL after them as well. Buffers    (buffer, capacity, &n): n is the
 * length of the result, without the NUL of a text. buffer NULL asks for n alone. When the result does not fit:
 * LES_BUFFER_TOO_SMALL, n is set, the buffer is untouched. ABI        Structures grow at the end only. Options carry
 * struct_size, set by their ..._init(&options, sizeof(options)); results are passed with sizeof(*result). A library
 * older than its header refuses options that it does not know and were set, and fills what it does not know of a result
 * with zeros. Callbacks  Must not call les on the same model, and must not throw or longjmp.
 */
#ifndef LES_H
#define LES_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LES_API __attribute__((visibility("default")))
#else
#define LES_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Rises when something is added; what was there stays. */
#define LES_API_VERSION 1

typedef struct les_model les_model;
typedef struct les_session les_session;
typedef struct les_tokenizer les_tokenizer;
typedef struct les_detokenizer les_detokenizer;
typedef struct les_sampler les_sampler;

typedef enum les_status {
  LES_OK = 0,
  LES_INVALID_ARGUMENT = 1, /* the caller's mistake */
  LES_NOT_FOUND = 2,        /* no such file, key or token */
  LES_CORRUPT = 3,          /* a file contradicts itself or its checksum */
  LES_UNSUPPORTED = 4,      /* valid, but not known to this build */
  LES_IO = 5,               /* the operating system refused */
  LES_OUT_OF_MEMORY = 6,    /* an allocation failed */
  LES_BUDGET = 7,           /* memory_bytes is below what the model needs; the message names the floor */
  LES_CANCELLED = 8,        /* stopped by les_session_cancel */
  LES_INTERNAL = 9,         /* a fault of les */
  LES_BUFFER_TOO_SMALL = 10,
  LES_CONTEXT_FULL = 11     /* the tokens do not fit behind those in the session */
} les_status;

/* LES_API_VERSION and "0.1.0" of the library itself. */
LES_API int32_t les_api_version(void);
LES_API const char* les_version(void);
/* "memory budget"; never NULL. */
LES_API const char* les_status_name(les_status status);
/* Of this thread's last failure; "" when there was none; never NULL. */
LES_API const char* les_error_message(void);

/* ---- models ---- */

enum { LES_KV_F16 = 0, LES_KV_F32 = 1, LES_KV_Q8_0 = 2 };
enum { LES_PREFETCH_AUTO = 0, LES_PREFETCH_ON = 1, LES_PREFETCH_OFF = 2 };
enum { LES_COMPUTE_INT8 = 0, LES_COMPUTE_F32 = 1 };

/* One line without a line break, from any thread, as long as the model or a session of it exists. */
typedef void (*les_log_fn)(void* user_data, const char* line);
/* During les_model_open, from the calling thread. */
typedef void (*les_progress_fn)(void* user_data, uint64_t done_bytes, uint64_t total_bytes);

typedef struct les_options {
  size_t struct_size;
  uint64_t memory_bytes; /* for the whole process; 0: what the model needs, within what the machine has */
  int32_t threads;       /* 0: the big cores */
  int32_t context;       /* tokens of a session; 0: the model's, at most 4096 */
  int32_t chunk;         /* tokens computed at a time in a prompt; 0: by the budget */
  int32_t lanes;         /* reads at a time; 0: by the platform */
  int32_t kv_type;       /* LES_KV_... */
  int32_t prefetch;      /* LES_PREFETCH_... */
  int32_t compute;       /* LES_COMPUTE_...: activations rounded to 8 bits (fast), or kept in float */
  int32_t direct;        /* 1: reads pass the page cache by, where the file system can */
  int32_t verify;        /* 1: an expert's checksum is checked when it is first read */
  int32_t reserved;      /* 0 */
  const char* reader;    /* "auto", "pread", "uring"; NULL: auto */
  const char* flash;     /* simulated flash for measurements: "ufs4", "nvme", "emmc" or "GB/s,lanes,us"; NULL: none */
  les_log_fn log;
  void* log_data;
  les_progress_fn progress;
  void* progress_data;
} les_options;

/* Defaults. struct_size: sizeof(les_options). */
LES_API les_status les_options_init(les_options* options, size_t struct_size);

/* What a model costs under a budget; computed from the file's headers, or of an open model as it is now. */
typedef struct les_plan {
  uint64_t budget_bytes;      /* 0: unlimited */
  uint64_t floor_bytes;       /* the smallest budget that runs */
  uint64_t recommended_bytes; /* one token's experts and half of the others */
  uint64_t full_bytes;        /* everything in memory */
  uint64_t total_bytes;       /* what this plan takes: the sum of the parts below */
  uint64_t process_bytes, trunk_bytes, tokenizer_bytes, kv_bytes, state_bytes, scratch_bytes, reader_bytes, cache_bytes;
  uint64_t expert_bytes;      /* of all experts, in memory or not */
  uint32_t n_experts_total, experts_per_token, n_slots;
  int32_t chunk, context;
  int32_t fits;               /* 0: les_model_open would give LES_BUDGET */
  char message[256];          /* the verdict in one line, or what to change */
} les_plan;

/* options NULL: the defaults. */
LES_API les_status les_plan_memory(const char* path, const les_options* options, les_plan* plan, size_t plan_size);

/* path: a .gguf or .les file, any shard of a split model, or a folder that holds one model. */
LES_API les_status les_model_open(const char* path, const les_options* options, les_model** model);
LES_API void les_model_free(les_model* model);
LES_API les_status les_model_plan(les_model* model, les_plan* plan, size_t plan_size);
/* Another budget while sessions keep their state; 0: unlimited. */
LES_API les_status les_model_set_memory(les_model* model, uint64_t memory_bytes);

typedef struct les_model_info {
  int32_t n_vocab, n_layers, n_moe_layers, n_experts, n_experts_used, context, threads, reserved;
  char architecture[64];
} les_model_info;
LES_API les_status les_model_get_info(les_model* model, les_model_info* info, size_t info_size);

/* Keys in file order; the pointer holds as long as the model. */
LES_API size_t les_model_n_metadata(const les_model* model);
LES_API les_status les_model_metadata_key(const les_model* model, size_t idx, const char** key);
/* The value as text: 42, 0.5, true, a string itself, [1, 2]. Arrays of strings: LES_UNSUPPORTED. */
LES_API les_status les_model_metadata(const les_model* model, const char* key, char* buffer, size_t capacity,
                                      size_t* n_bytes);
/* The Jinja text that the model ships, for the caller to render; LES_NOT_FOUND without one. Holds as long as the model.
 */
LES_API les_status les_model_chat_template(const les_model* model, const char** text, size_t* n_bytes);

/* Totals since opening, or since the last reset. */
typedef struct les_stats {
  uint64_t n_steps, prefill_tokens, decode_tokens;
  int64_t prefill_ns, decode_ns;
  int64_t stall_ns;                /* nothing could be computed for want of an expert */
  uint64_t n_hit, n_miss, n_late;  /* experts in memory; read on demand; guessed, but not there in time */
  uint64_t n_evicted, n_cancelled, n_read_errors;
  uint64_t flash_bytes, guessed_bytes, useful_bytes, late_bytes, wasted_bytes, device_bytes;
  uint64_t n_slots, cache_bytes, scratch_bytes;
  uint64_t peak_bytes;             /* of the process, ever */
  char reader[64];                 /* "pread x4 direct" */
} les_stats;
LES_API les_status les_model_stats(les_model* model, les_stats* stats, size_t stats_size);
LES_API les_status les_model_reset_stats(les_model* model);

/* ---- tokenizers ---- */

#define LES_NO_TOKEN (-1)
enum {
  LES_ENCODE_MARKUP =
      1, /* control tokens spelled in the text become such: for a template's own words, never a user's */
  LES_ENCODE_SPECIAL = 2 /* adds the BOS and EOS that the model asks for */
};
enum { LES_DECODE_CONTROL = 1 /* control tokens show their names instead of nothing */ };

/* Of an open model, or of a file alone without loading it. */
LES_API les_status les_model_tokenizer(const les_model* model, les_tokenizer** tokenizer);
LES_API les_status les_tokenizer_open(const char* path, les_tokenizer** tokenizer);
LES_API void les_tokenizer_free(les_tokenizer* tokenizer);

/* flags: LES_ENCODE_... or 0. */
LES_API les_status les_tokenizer_encode(const les_tokenizer* tokenizer, const char* text, size_t n_bytes,
                                        uint32_t flags, int32_t* tokens, size_t capacity, size_t* n_tokens);
/* flags: LES_DECODE_... or 0. Bytes that form no character become U+FFFD. */
LES_API les_status les_tokenizer_decode(const les_tokenizer* tokenizer, const int32_t* tokens, size_t n_tokens,
                                        uint32_t flags, char* buffer, size_t capacity, size_t* n_bytes);
/* The token of exactly this name. */
LES_API les_status les_tokenizer_find(const les_tokenizer* tokenizer, const char* name, int32_t* token);
/* Without a tokenizer: 0, and LES_NO_TOKEN. */
LES_API int32_t les_tokenizer_n_vocab(const les_tokenizer* tokenizer);
LES_API int32_t les_tokenizer_bos(const les_tokenizer* tokenizer);
LES_API int32_t les_tokenizer_eos(const les_tokenizer* tokenizer);
/* 1: the token ends a reply. */
LES_API int32_t les_tokenizer_is_end(const les_tokenizer* tokenizer, int32_t token);

/* Tokens to text as they come, whole characters only. The text holds until the next call and may be empty. */
LES_API les_status les_detokenizer_new(const les_tokenizer* tokenizer, uint32_t flags, les_detokenizer** detokenizer);
LES_API void les_detokenizer_free(les_detokenizer* detokenizer);
LES_API les_status les_detokenizer_add(les_detokenizer* detokenizer, int32_t token, const char** text, size_t* n_bytes);
/* What is left at the end of a text; then a new text may begin. */
LES_API les_status les_detokenizer_finish(les_detokenizer* detokenizer, const char** text, size_t* n_bytes);

/* ---- sessions ---- */

/* One timeline of tokens; its memory comes out of the model's budget. */
LES_API les_status les_session_new(les_model* model, les_session** session);
LES_API void les_session_free(les_session* session);

/* Appends the tokens. On failure the session is as before. */
LES_API les_status les_session_eval(les_session* session, const int32_t* tokens, size_t n_tokens);
/* The n_vocab logits of the last token of les_session_eval; they hold until the session's next eval, rewind or load,
 * and there are none (LES_NOT_FOUND) after a rewind, a load, a failed eval or les_session_eval_rows. */
LES_API les_status les_session_logits(const les_session* session, const float** logits, size_t* n_vocab);
/* As eval; logits [n_rows, n_vocab] of the last n_rows tokens go into the caller's buffer of `capacity` floats. */
LES_API les_status les_session_eval_rows(les_session* session, const int32_t* tokens, size_t n_tokens, size_t n_rows,
                                         float* logits, size_t capacity);
/* Number of tokens; 0 without a session. */
LES_API size_t les_session_position(const les_session* session);
/* The tokens; the pointer holds until the next eval, rewind or load. */
LES_API les_status les_session_tokens(const les_session* session, const int32_t** tokens, size_t* n_tokens);
/* Keeps the first n_tokens. */
LES_API les_status les_session_rewind(les_session* session, size_t n_tokens);
LES_API les_status les_session_save(les_session* session, const char* path);
/* A file of the same model and kv_type. On failure the session is as before. */
LES_API les_status les_session_load(les_session* session, const char* path);
/* Makes an eval that is running fail with LES_CANCELLED; without one it does nothing. From any thread. */
LES_API les_status les_session_cancel(les_session* session);

/* ---- sampling ---- */

typedef struct les_sampler_options {
  size_t struct_size;
  uint64_t seed;     /* the same seed gives the same choices; 0: others each time */
  float temperature; /* 0: always the likeliest token. Default 0.8 */
  float top_p;       /* 1: all. Default 0.95 */
  float min_p;       /* 0: all. Default 0.05 */
  int32_t top_k;     /* 0: all. Default 40 */
} les_sampler_options;

LES_API les_status les_sampler_options_init(les_sampler_options* options, size_t struct_size);
/* options NULL: the defaults. */
LES_API les_status les_sampler_new(const les_sampler_options* options, les_sampler** sampler);
LES_API void les_sampler_free(les_sampler* sampler);
/* top_k, then top_p, then min_p at temperature 1; then the temperature. */
LES_API les_status les_sampler_choose(les_sampler* sampler, const float* logits, size_t n_vocab, int32_t* token);

#ifdef __cplusplus
}
#endif

#endif /* LES_H */
