/* Rewrites a program of a linear regression, verifies the result, and trains it on two ranks:
 *
 *   cc train.c $(pkg-config --cflags --libs weft_c) -o train
 *   ./train main.pb startup.pb out.npz
 */
#include <stdio.h>
#include <stdlib.h>

#include "weft/c/weft.h"

enum { kRows = 20, kFeatures = 13, kSteps = 3 };

/* Ends the program with the line that the commands print. */
static void Check(weft_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "error: %s\n", weft_status_message(status));
  weft_status_free(status);
  exit(1);
}

static weft_program* Read(const char* path) {
  weft_program* program = NULL;
  Check(weft_program_read(path, &program));
  return program;
}

static weft_transpiled* Rewrite(const weft_program* main, const weft_program* startup) {
  weft_options* options = NULL;
  weft_transpiled* result = NULL;
  size_t i;
  Check(weft_options_new("transpile", &options));
  Check(weft_options_set(options, "mode", "grad_allreduce"));
  Check(weft_transpile(options, main, startup, &result));
  weft_options_free(options);
  for (i = 0; i < weft_transpiled_num_messages(result); ++i) {
    printf("transpile says: %s\n", weft_transpiled_message(result, i).text);
  }
  return result;
}

static void Verify(const weft_program* main, const weft_program* startup,
                   const weft_program* original) {
  weft_report* report = NULL;
  size_t i;
  Check(weft_verify(NULL, &main, 1, &startup, 1, original, NULL, NULL, &report));
  for (i = 0; i < weft_report_num_findings(report); ++i) {
    const weft_finding finding = weft_report_finding(report, i);
    printf("%s: %s\n", finding.rule, finding.message);
  }
  printf("verified: %s\n", weft_report_ok(report) ? "yes" : "no");
  weft_report_free(report);
}

static void Train(const weft_program* main, const weft_program* startup, const char* path) {
  static float x[kRows * kFeatures], y[kRows];
  const int64_t x_dims[] = {kRows, kFeatures}, y_dims[] = {kRows, 1};
  const char* const names[] = {"x", "y"};
  weft_array batch[2];
  weft_options* options = NULL;
  weft_run* run = NULL;
  int step, i;
  Check(weft_options_new("run", &options));
  Check(weft_options_set(options, "ranks", "2"));
  Check(weft_run_new(options, main, startup, NULL, NULL, 0, &run));
  weft_options_free(options);
  for (i = 0; i < kRows * kFeatures; ++i) x[i] = (float)(i % 7) / 7;
  for (i = 0; i < kRows; ++i) y[i] = (float)i / kRows;
  batch[0].dtype = batch[1].dtype = WEFT_FLOAT32;
  batch[0].num_dims = batch[1].num_dims = 2;
  batch[0].dims = x_dims;
  batch[1].dims = y_dims;
  batch[0].data = x;
  batch[1].data = y;
  for (step = 0; step < kSteps; ++step) {
    Check(weft_run_step(run, names, batch, 2));
    printf("step %d: %s %.6g\n", step, weft_run_fetched_name(run, 0),
           weft_run_fetched_number(run, 0));
  }
  Check(weft_run_save(run, path));
  Check(weft_run_end(run));
  weft_run_free(run);
}

int main(int argc, char** argv) {
  weft_program *main_program, *startup, *new_main, *new_startup;
  weft_transpiled* result;
  if (argc != 4) return 2;
  main_program = Read(argv[1]);
  startup = Read(argv[2]);
  result = Rewrite(main_program, startup);
  new_main = weft_transpiled_main(result, 0);
  new_startup = weft_transpiled_startup(result, 0);
  Verify(new_main, new_startup, main_program);
  Train(new_main, new_startup, argv[3]);
  weft_program_free(new_main);
  weft_program_free(new_startup);
  weft_transpiled_free(result);
  weft_program_free(main_program);
  weft_program_free(startup);
  return 0;
}
