/* Weft for programs in C, and for all languages that call C.
 *
 * A call takes and returns handles. It keeps nothing that another call would share, prints nothing
 * but what ops print of a running program say (on standard error), and lets no exception out.
 * Different threads may use different handles at the same time; one handle belongs to one thread at
 * a time.
 *
 * Every function that can fail returns a weft_status: NULL if it has succeeded, else the error,
 * with the line that the commands print, for the caller to free. Outputs are set only on success.
 * Each handle has a function that frees it, which takes NULL, too. Texts that a function returns
 * belong to the handle that it is asked of, end with a zero byte, and are UTF-8 where the program
 * is.
 *
 *   weft_options* options = NULL;
 *   weft_program* main = NULL;
 *   weft_status* error = weft_options_new("transpile", &options);
 *   if (error == NULL) error = weft_options_set(options, "mode", "grad_allreduce");
 *   if (error == NULL) error = weft_program_read("main.pb", &main);
 *   weft_transpiled* result = NULL;
 *   if (error == NULL) error = weft_transpile(options, main, NULL, &result);
 *   if (error != NULL) fprintf(stderr, "error: %s\n", weft_status_message(error));
 *
 * A process may fork before its first run. A run has threads, which a fork does not copy: in a
 * child of a process in which a run has begun, runs are an error that says so.
 */
#ifndef WEFT_C_WEFT_H_
#define WEFT_C_WEFT_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. A library of the same number has at least what a header of that
 * number declares; functions may come, none changes or goes. */
#define WEFT_C_VERSION 2
int weft_c_version(void);
/* The version of Weft: "0.1.0". */
const char* weft_version(void);

/* --- Errors --------------------------------------------------------------------------------- */

typedef struct weft_status weft_status;

/* Why: the codes of Abseil and gRPC. */
typedef enum weft_code {
  WEFT_OK = 0,
  WEFT_CANCELLED = 1,
  WEFT_UNKNOWN = 2,
  WEFT_INVALID_ARGUMENT = 3, /* an option, a program or a batch is wrong */
  WEFT_DEADLINE_EXCEEDED = 4,
  WEFT_NOT_FOUND = 5,
  WEFT_ALREADY_EXISTS = 6,
  WEFT_PERMISSION_DENIED = 7,
  WEFT_RESOURCE_EXHAUSTED = 8, /* memory, threads */
  WEFT_FAILED_PRECONDITION = 9,
  WEFT_ABORTED = 10,
  WEFT_OUT_OF_RANGE = 11,
  WEFT_UNIMPLEMENTED = 12,
  WEFT_INTERNAL = 13, /* a defect of Weft */
  WEFT_UNAVAILABLE = 14,
  WEFT_DATA_LOSS = 15
} weft_code;

/* WEFT_OK for NULL. */
weft_code weft_status_code(const weft_status* status);
/* One line, or several of which all but the first are indented; "" for NULL. */
const char* weft_status_message(const weft_status* status);
void weft_status_free(weft_status* status);

/* Bytes that a function makes for the caller. */
typedef struct weft_text weft_text;
const char* weft_text_data(const weft_text* text);
size_t weft_text_size(const weft_text* text); /* without the zero byte at the end */
void weft_text_free(weft_text* text);

/* What a call says besides its result. */
typedef enum weft_severity {
  WEFT_SEVERITY_ERROR = 0,
  WEFT_SEVERITY_WARNING = 1,
  WEFT_SEVERITY_NOTE = 2
} weft_severity;

typedef struct weft_message {
  weft_severity severity;
  const char* text; /* one line, without a word for the severity */
} weft_message;

/* --- Options -------------------------------------------------------------------------------- */

/* The options of a command, by the names of its flags: "mode" for --mode; messages name them so,
 * too. Values are the text that the command line takes; of a flag without a value, "true" or
 * "false". */
typedef struct weft_options weft_options;

typedef struct weft_option {
  const char* name;          /* "nranks" */
  const char* type;          /* what help shows as its value: "N"; "" for a flag without a value */
  const char* default_value; /* as far as the option has one of its own; else "" */
  const char* help;          /* one line */
  int is_flag;               /* takes no value */
  int is_list;               /* may be set several times */
} weft_option;

/* `command`: "transpile", "verify", "stats", "plan", "view", "run" or "eval". WEFT_NOT_FOUND for
 * another. */
weft_status* weft_options_new(const char* command, weft_options** options);
/* WEFT_INVALID_ARGUMENT for a name that the command does not have; a wrong value is an error of the
 * call that takes the options. Options that name inputs and outputs of a command are arguments and
 * results of that call instead. */
weft_status* weft_options_set(weft_options* options, const char* name, const char* value);
/* What can be set, in the order of help; valid as long as the handle. */
size_t weft_options_count(const weft_options* options);
weft_option weft_options_get(const weft_options* options, size_t index);
/* Of "transpile": called after each pass with its name, in the thread of weft_transpile. */
void weft_options_set_progress(weft_options* options,
                               void (*progress)(void* context, const char* pass), void* context);
void weft_options_free(weft_options* options);

/* --- Programs ------------------------------------------------------------------------------- */

/* A program of Paddle 1.8 to 3.3, or a training step of PyTorch (.pt2), which is also the startup
 * program that makes the values in it. It does not change. */
typedef struct weft_program weft_program;

typedef enum weft_format {
  WEFT_FORMAT_BINARY = 0,       /* .pb: a serialized ProgramDesc */
  WEFT_FORMAT_PROTO_TEXT = 1,   /* .pbtxt */
  WEFT_FORMAT_PROGRAM_TEXT = 2, /* .prog */
  WEFT_FORMAT_PIR = 3,          /* .json: Paddle 3's own */
  WEFT_FORMAT_PT2 = 4           /* .pt2, of programs that came in that */
} weft_format;

/* Reads a file; its name tells the format. The file may change afterwards. O(file). */
weft_status* weft_program_read(const char* path, weft_program** program);
/* Reads bytes, which are copied. WEFT_FORMAT_BINARY takes the bytes of PIR and .pt2, too. `name`
 * stands for the file in messages. */
weft_status* weft_program_parse(const void* bytes, size_t size, weft_format format,
                                const char* name, weft_program** program);
/* Writes a file atomically; its name tells the format. */
weft_status* weft_program_write(const weft_program* program, const char* path);
weft_status* weft_program_serialize(const weft_program* program, weft_format format,
                                    weft_text** text);
/* The format that keeps all of the program: WEFT_FORMAT_PIR if it came in that, else BINARY. The
 * values in a .pt2 file are no part of the program: WEFT_FORMAT_PT2 keeps them. */
weft_format weft_program_format(const weft_program* program);
/* The bytes of the .pt2 file that the program came from, rewritten or not, with the values that it
 * begins with; empty for other programs. */
weft_status* weft_program_archive(const weft_program* program, weft_text** archive);
/* A copy of the program that came from this .pt2 file: its bytes in WEFT_FORMAT_BINARY and the
 * archive are all of it. */
weft_status* weft_program_with_archive(const weft_program* program, const void* archive,
                                       size_t size, weft_program** result);
const char* weft_program_name(const weft_program* program);
size_t weft_program_num_ops(const weft_program* program); /* of all blocks */
void weft_program_free(weft_program* program);

/* What weft diff prints; empty if there is no difference. */
weft_status* weft_diff(const weft_program* a, const weft_program* b, weft_text** text);
/* What weft stats and weft plan print. `options` may be NULL. */
weft_status* weft_stats(const weft_options* options, const weft_program* program, weft_text** text);
weft_status* weft_plan(const weft_options* options, const weft_program* program, weft_text** text);
/* The page of weft view, as HTML. All but `program` may be NULL. */
weft_status* weft_view(const weft_options* options, const weft_program* program,
                       const weft_program* startup, const weft_program* original,
                       const weft_program* original_startup, weft_text** text);

/* --- transpile ------------------------------------------------------------------------------ */

typedef struct weft_transpiled weft_transpiled;

/* Rewrites copies of the programs, and verifies the result. `startup` may be NULL. Option
 * certificate certifies the bytes that weft_program_serialize makes in weft_program_format, and
 * weft_program_write in files of that format: .pb, or .json for programs of Paddle 3. An original
 * that came from other files (text, .pt2) is written so, too. */
weft_status* weft_transpile(const weft_options* options, const weft_program* main,
                            const weft_program* startup, weft_transpiled** result);
/* 1; with option rank=all, the number of trainers. */
size_t weft_transpiled_count(const weft_transpiled* result);
/* Copies, which the caller frees; NULL where there is none. The server's program is that of mode
 * parameter_server. */
weft_program* weft_transpiled_main(const weft_transpiled* result, size_t trainer);
weft_program* weft_transpiled_startup(const weft_transpiled* result, size_t trainer);
weft_program* weft_transpiled_server(const weft_transpiled* result);
size_t weft_transpiled_num_messages(const weft_transpiled* result);
weft_message weft_transpiled_message(const weft_transpiled* result, size_t index);
/* What transpile --remarks writes: JSON. */
const char* weft_transpiled_remarks(const weft_transpiled* result, size_t trainer);
void weft_transpiled_free(weft_transpiled* result);

/* --- verify --------------------------------------------------------------------------------- */

typedef struct weft_report weft_report;

typedef struct weft_finding {
  const char* rule; /* its id: docs/reference/verifier_rules.md */
  weft_severity severity;
  int rank;       /* -1: one program is for all ranks */
  int in_startup; /* in the startup program */
  /* The op; op_type is NULL if the finding is about the program as a whole. */
  int block;
  int64_t op_index;
  const char* op_type;
  const char* variable; /* may be "" */
  const char* message;  /* names op, variable, expected and found */
} weft_finding;

/* Verifies the program that all ranks run, or one per rank. `startups`: none, one, or one per
 * program. `original`, `original_startup` and `server` may be NULL, and so may `options`. A wrong
 * program is no error. Option certificate is as of weft_transpile. */
weft_status* weft_verify(const weft_options* options, const weft_program* const* mains,
                         size_t num_mains, const weft_program* const* startups, size_t num_startups,
                         const weft_program* original, const weft_program* original_startup,
                         const weft_program* server, weft_report** report);
/* 1 if nothing is wrong. */
int weft_report_ok(const weft_report* report);
size_t weft_report_num_findings(const weft_report* report);
weft_finding weft_report_finding(const weft_report* report, size_t index);
/* What weft verify prints, and with --format json. */
const char* weft_report_text(const weft_report* report);
const char* weft_report_json(const weft_report* report);
void weft_report_free(weft_report* report);

/* --- Tensors -------------------------------------------------------------------------------- */

/* Element types, numbered as in Paddle's VarType. */
typedef enum weft_dtype {
  WEFT_BOOL = 0,
  WEFT_INT16 = 1,
  WEFT_INT32 = 2,
  WEFT_INT64 = 3,
  WEFT_FLOAT16 = 4,
  WEFT_FLOAT32 = 5,
  WEFT_FLOAT64 = 6,
  WEFT_UINT8 = 20,
  WEFT_INT8 = 21,
  WEFT_BFLOAT16 = 22,
  WEFT_COMPLEX64 = 23,
  WEFT_COMPLEX128 = 24,
  WEFT_FLOAT8_E4M3 = 32,
  WEFT_FLOAT8_E5M2 = 33,
  WEFT_UINT16 = 36,
  WEFT_UINT32 = 37,
  WEFT_UINT64 = 38
} weft_dtype;

/* Elements in memory of the host, in row-major order without gaps: at most 64 dimensions. `data` of
 * an array without elements may be NULL. Calls return WEFT_INVALID_ARGUMENT for another array. */
typedef struct weft_array {
  weft_dtype dtype;
  int num_dims;
  const int64_t* dims;
  const void* data;
} weft_array;

/* Arrays by name. They stay where they are until the handle is freed. */
typedef struct weft_arrays weft_arrays;
size_t weft_arrays_count(const weft_arrays* arrays);
/* NULL, and all zeros, if there is no such array. */
const char* weft_arrays_name(const weft_arrays* arrays, size_t index);
weft_array weft_arrays_get(const weft_arrays* arrays, size_t index);
void weft_arrays_free(weft_arrays* arrays);

/* --- Runs ----------------------------------------------------------------------------------- */

/* A run that trains a program, step by step. Its ranks are threads of this process; of those that a
 * launcher has started, as in weft run, unless option backend is local: then all make the same
 * calls in the same order, with the batch of all ranks, get the same results, and the first writes
 * files. One run of such a process can join. */
typedef struct weft_run weft_run;

/* Verifies the programs, as weft run does. `startup` and `options` may be NULL. The run begins with
 * the values of `startup`, of the `num_params` arrays, which are copied, and of options params or
 * resume; without any, with the values in a .pt2 file. */
weft_status* weft_run_new(const weft_options* options, const weft_program* main,
                          const weft_program* startup, const char* const* param_names,
                          const weft_array* params, size_t num_params, weft_run** run);
/* Runs one step with the batch of all ranks, which may change when this returns. Every step has the
 * variables of the first one. The first error ends the run. */
weft_status* weft_run_step(weft_run* run, const char* const* names, const weft_array* batch,
                           size_t num_arrays);
int weft_run_num_ranks(const weft_run* run); /* of all processes */
int weft_run_num_processes(const weft_run* run);
int weft_run_process(const weft_run* run); /* the number of this one; 0 without a launcher */
/* The next step. */
int64_t weft_run_next_step(const weft_run* run);
/* The variables that option fetch names, or the losses. 0 before the first step, and after a step
 * that has failed: it has no results. */
size_t weft_run_num_fetched(const weft_run* run);
/* NULL if there is no such variable. */
const char* weft_run_fetched_name(const weft_run* run, size_t index);
/* As weft run prints it: the mean over the ranks, or the sum if ranks have partial sums; of a
 * tensor with several elements, of their means. Not a number if there is no such variable. */
double weft_run_fetched_number(const weft_run* run, size_t index);
/* The array of a rank in the last step, as weft_run_take_fetched has it; valid until the next call
 * that changes the run. All zeros, without data, if there is no such variable or rank. */
weft_array weft_run_fetched(const weft_run* run, size_t index, int rank);
/* The arrays of all fetched variables of the last step: array i * ranks + r is that of variable i
 * on rank r. Of rows of a taller tensor (SelectedRows), it has the values; their indices, int64,
 * follow all others, by variable and rank, named VARIABLE/rows. Arrays share the memory of the
 * results, and outlive the run. */
weft_status* weft_run_take_fetched(weft_run* run, weft_arrays** arrays);
/* Parameters and state before the next step, copied: what weft run --save writes. Where ranks have
 * values of their own, those of the first. */
weft_status* weft_run_state(weft_run* run, weft_arrays** arrays);
/* Sets parameters and state on all ranks, before the next step: copies of some of the arrays of
 * weft_run_state, or all. WEFT_INVALID_ARGUMENT, which leaves the run as it is, for a name that the
 * program does not have, another type or shape, and a parameter without its master weight.
 * WEFT_FAILED_PRECONDITION, which does so, too, for a variable of which ranks have values of their
 * own, as between two averages of LocalSGD; but they may differ in the running statistics of
 * batch_norm. */
weft_status* weft_run_set_state(weft_run* run, const char* const* names, const weft_array* arrays,
                                size_t num_arrays);
/* Where schedule reduce_on_plateau stands before the next step. 0, and nothing is set, if the run
 * has none, or has not begun. */
typedef struct weft_plateau {
  double rate;
  double best;                    /* the metric; not a number if there was none */
  int64_t num_bad, cooldown_left; /* looks at it */
} weft_plateau;
int weft_run_plateau(weft_run* run, weft_plateau* plateau);
/* As weft run --save and --checkpoint write it; the extension of --save tells the format. */
weft_status* weft_run_save(weft_run* run, const char* path);
weft_status* weft_run_checkpoint(weft_run* run, const char* path);
/* What the run has said since the last call of this; valid until that. */
size_t weft_run_take_messages(weft_run* run, const weft_message** messages);
/* Ends the run, and its threads: later steps and states are errors. The error that has ended it, if
 * one has. */
weft_status* weft_run_end(weft_run* run);
void weft_run_free(weft_run* run); /* ends it, too */

/* --- Evaluation ----------------------------------------------------------------------------- */

/* A run that evaluates a test program, as weft eval does: weft_run_step takes a batch, of which
 * arrays that the program does not have are left out. `options`, of "eval", and `startup` may be
 * NULL. The arrays are those of training, such as weft_run_state has: WEFT_INVALID_ARGUMENT if a
 * parameter is missing. Without any, `startup` makes the parameters. */
weft_status* weft_evaluation_new(const weft_options* options, const weft_program* test,
                                 const weft_program* startup, const char* const* param_names,
                                 const weft_array* params, size_t num_params, weft_run** run);
/* Begins anew, as weft_evaluation_new does with these values; what they lack has no value of the
 * evaluation before. The errors of weft_evaluation_new. */
weft_status* weft_evaluation_restart(weft_run* run, const char* const* param_names,
                                     const weft_array* params, size_t num_params);
/* What weft eval --format json prints, of the batches since the beginning. WEFT_INVALID_ARGUMENT
 * for a run that trains, WEFT_FAILED_PRECONDITION without a batch. */
weft_status* weft_evaluation_totals(weft_run* run, weft_text** json);
/* Whether one of the numbers, by name, is the best that the run `run`, which trains, has had: as
 * weft run --keep_best chooses. The run keeps that number, and its checkpoints do. `evaluation`, of
 * which the numbers are, may be NULL. Without numbers, this only compares `choice` with the metrics
 * of `evaluation`. WEFT_INVALID_ARGUMENT for a metric that there is not. */
weft_status* weft_run_is_best(weft_run* run, const weft_run* evaluation, const char* choice,
                              const char* const* names, const double* values, size_t num_values,
                              int* is_best);

#ifdef __cplusplus
}
#endif

#endif /* WEFT_C_WEFT_H_ */
