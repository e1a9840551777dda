#include "tools/cmd/weft_run_flags.h"

#include <cstdint>
#include <limits>

#include "absl/strings/match.h"
#include "executor/files/params_file.h"
#include "executor/run/runner.h"
#include "tools/flags/assume_flag.h"
#include "tools/flags/command_line.h"
#include "tools/flags/setting_flags.h"
#include "tools/schedules/lr_schedule.h"
#include "tools/schedules/run_schedule.h"

namespace weft {
namespace {

void AddInputFlags(CLI::App& app, RunFlags& flags) {
  AddOption(app, "main", "MAIN", flags.main, "The main program; - is standard input")->required();
  AddOption(app, "--startup", "FILE", flags.startup,
            "The startup program, run once before the first step");
  auto* server = AddOption(app, "--server", "FILE", flags.server,
                           "The program of the parameter servers, which transpile --server_out "
                           "wrote");
  auto* servers = AddInteger(app, "--servers", flags.run.num_servers, 1, kMaxRanks,
                             "How many of the ranks, the last ones, are parameter servers");
  server->needs(servers);
  servers->needs(server);
  auto* params =
      AddOption(app, "--params", "FILE", flags.params,
                "Parameters and state, set after the startup program: .npz, "
                ".safetensors, Paddle's .pdparams with the .pdopt beside it, a folder with "
                "a file for each variable, or a save_combine stream (any other "
                "extension)");
  AddOption(
      app, "--params_names", "FILE", flags.params_names,
      "Names of the tensors in a save_combine stream, in order: one per line, or a JSON list; "
      "default: the persistable variables of the program, or its parameters, sorted")
      ->needs(params);
  AddOption(app, "--feeds", "FILE.npz", flags.feeds,
            "Arrays named <step>/<variable>, for the batch of all ranks; after the last step, they "
            "start over");
  AddOption(app, "--feed_layout", "x=axis:1,...", flags.feed_layout,
            "How feed variables are given to the ranks: split along an axis, or whole; default: as "
            "the file says, else as their declarations suggest");
  AddAssumeFlag(&app, &flags.assume);
  AddOrderFlag(&app, &flags.order);
  app.add_flag("--drop_last", flags.drop_last,
               "Leave the last batch of the feeds out if it does not divide by the ranks");
  AddOption(app, "--set", "NAME=VALUE", flags.schedule.set,
            "Set a persistable variable that no op writes, before every step")
      ->allow_extra_args(false);
  auto* schedule =
      AddOption(app, "--lr_schedule", "NAME{...}", flags.schedule.lr_schedule,
                "Compute the learning rate of every step as Paddle's schedulers do: "
                "'noam{d_model=512,warmup_steps=4000}', "
                "'linear_warmup{warmup_steps=5,start_lr=0,end_lr=0.1},cosine{...}', ...; "
                "docs/running.md lists them all");
  AddOption(app, "--lr_var", "NAME", flags.schedule.lr_var,
            "The variable to set; default: the program's only learning rate")
      ->needs(schedule);
}

void AddCourseFlags(CLI::App& app, RunFlags& flags) {
  RunOptions& run = flags.run;
  AddInteger(app, "--steps", flags.steps, 0, std::numeric_limits<int64_t>::max(),
             "Number of steps; default: to the end of the feeds");
  auto* begin_step =
      AddInteger(app, "--resume_step,--begin_step", run.begin_step, 0,
                 std::numeric_limits<int64_t>::max(),
                 "Resume after N steps: feeds, schedules and random draws continue from there; the "
                 "state comes from --params")
          ->capture_default_str();
  AddOption(app, "--resume", "FILE", flags.resume,
            "Resume from a checkpoint, to the end of its run: its state replaces --startup and "
            "--params, and its ranks, seed and schedule are the defaults; of --params, only arrays "
            "that the program does not have are kept, for --save")
      ->excludes(begin_step);
  AddOption(app, "--fetch", "A,B", run.fetch,
            "Comma-separated variables to report; default: the loss")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddInteger(app, "--ranks", run.nranks, 1, kMaxRanks, "Ranks of this process")
      ->capture_default_str();
  app.add_option(
         "--backend", flags.backend,
         "What ranks communicate with; default: nccl on GPUs; on CPUs local for one process (ranks "
         "are threads), and for processes of a launcher shm on one host, else mpi if it belongs to "
         "an MPI, else gloo. On a GPU, local is for ranks of one process that share it")
      ->check(CLI::IsMember({"local", "shm", "mpi", "gloo", "nccl"}));
  AddOption(
      app, "--job_token_file", "FILE", flags.job_token_file,
      "The secret by which the processes of the job know each other: 32 hexadecimal digits in "
      "a file of mode 600; default: of the launcher, or of a file that process 0 writes here");
  AddOption(app, "--nccl_id_file", "FILE", flags.nccl_id_file,
            "Give NCCL's ids to the other processes in this file, on a file system of all hosts; "
            "default: over the connection of the processes");
  app.add_option("--device", flags.device, "Device that computes")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->capture_default_str();
  app.add_option(
         "--cuda_graph", flags.cuda_graph,
         "With --device gpu: record a step as a CUDA graph, which later steps replay; auto: "
         "where nothing in it needs the host; on: otherwise fail")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_flag("--tf32", run.tf32,
               "With --device gpu: products of fp32 round their operands to TF32");
  AddInteger(app, "--sim_memory,--device_memory", run.sim.memory_bytes, 0,
             std::numeric_limits<int64_t>::max(),
             "Memory of the accelerator that the host simulates, for a program on one device or "
             "two; a program that needs more fails; 0: as much as the host has")
      ->capture_default_str()
      ->type_name("BYTES");
  app.add_option("--sim_copy_bandwidth,--copy_bandwidth", run.sim.copy_bytes_per_s,
                 "Limit copies between the memories of two devices to so many bytes per second; 0: "
                 "no limit")
      ->check(NumberThat([](double rate) { return rate >= 0; }, "bytes a second, 0 or more"))
      ->capture_default_str()
      ->type_name("BYTES_PER_S");
  AddInteger(app, "--threads", run.threads, 1, kMaxThreads, "Compute threads per rank")
      ->capture_default_str();
  AddInteger(app, "--seed", run.seed, 0, std::numeric_limits<uint64_t>::max(),
             "Random seed for initializers and dropout whose own seed is 0")
      ->capture_default_str();
  app.add_flag("--allow_unsynchronized", run.allow_unsynchronized,
               "Accept a program that updates parameters on several ranks without any collective: "
               "each rank trains a separate model");
  app.add_flag("--force", flags.force,
               "Run a program that weft verify proves wrong without its original: the errors are "
               "warnings");
  app.add_flag("--strict_host_sync", run.strict_host_sync,
               "Make c_sync_* block the host, as in Paddle, instead of making streams wait");
  app.add_flag("--paddle_cpu_quirks", run.paddle_cpu_quirks,
               "Reproduce known bugs of Paddle's CPU kernels");
  app.add_flag("--check_nan", run.check_nan, "Stop at the first op that produces a NaN or Inf");
  app.add_option("--warn_after_s", run.warn_after_s, "Report a late rank after S seconds")
      ->check(NumberThat([](double s) { return s >= 0; }, "seconds, 0 or more"))
      ->capture_default_str()
      ->type_name("S");
  app.add_option("--timeout_s", run.timeout_s, "Abort the run when a rank is S seconds late")
      ->check(NumberThat([](double s) { return s > 0; }, "seconds, more than 0"))
      ->capture_default_str()
      ->type_name("S");
}

void AddValidationFlags(CLI::App& app, RunFlags& flags) {
  TestFlags& valid = flags.valid;
  auto* program = AddOption(app, "--valid", "FILE", valid.main,
                            "The test program, evaluated at the end as weft eval does");
  auto* feeds = AddOption(app, "--valid_feeds", "FILE.npz", valid.feeds,
                          "The batches of --valid: arrays named <batch>/<variable>");
  program->needs(feeds);
  feeds->needs(program);
  AddInteger(app, "--valid_every", flags.valid_every, 1, std::numeric_limits<int64_t>::max(),
             "Evaluate --valid after every N steps, too. Without --save_every, write --checkpoint "
             "then; with it, N must be a multiple of it")
      ->needs(program);
  app.add_flag("--valid_ema", valid.ema,
               "Evaluate --valid with the moving averages of the parameters that Paddle's "
               "ExponentialMovingAverage makes")
      ->needs(program);
  AddOption(
      app, "--keep_best", "METRIC", flags.keep_best,
      "Keep the best checkpoint so far as FILE.best, beside --checkpoint FILE: the one with the "
      "smallest loss, or with the smallest metric of --valid of that name; max:NAME: the largest")
      ->needs(program);
}

void AddOutputFlags(CLI::App& app, RunFlags& flags) {
  AddOption(
      app, "--save", "FILE", flags.save,
      "Write parameters and state of rank 0 after the last step: .npz, .safetensors, .pdparams "
      "and .pdopt, or a save_combine stream (any other extension), sorted by name");
  auto* checkpoint = AddOption(
      app, "--checkpoint", "FILE", flags.checkpoint,
      "Write the state of all ranks, for --resume: at the end, and at SIGINT and SIGTERM, "
      "which then stop the run after the current step");
  AddInteger(app, "--save_every", flags.save_every, 1, std::numeric_limits<int64_t>::max(),
             "Write --checkpoint after every N steps, too")
      ->needs(checkpoint);
  AddInteger(app, "--keep", flags.keep, 1, 1000000,
             "Keep the last N checkpoints, as FILE.STEP; FILE is the last one")
      ->needs(checkpoint)
      ->capture_default_str();
  AddOption(app, "--metrics", "FILE.jsonl", flags.metrics,
            "Write one JSON object per line for each step and rank, during the run; with --resume, "
            "after the lines of earlier steps; FILE.csv: a line for each step, with the numbers "
            "that are printed");
  AddOption(app, "--tensorboard", "DIR", flags.tensorboard,
            "Write the numbers that are printed to a file in this folder, for TensorBoard");
  AddInteger(app, "--log_every", flags.log_every, 1, std::numeric_limits<int64_t>::max(),
             "Print the lines of every N-th step")
      ->capture_default_str();
  app.add_flag("--quiet", flags.quiet, "Print no lines of steps and no notes");
  AddOption(app, "--fetch_npz", "FILE.npz", flags.fetch_npz,
            "Write the fetched arrays in full, named <step>/<rank>/<variable>; SelectedRows as "
            "<step>/<rank>/<variable>/rows and .../values");
  AddOption(app, "--trace", "FILE.json", flags.trace,
            "Write when every op ran, as a Chrome trace, which opens in Perfetto: one row per rank "
            "and stream");
  AddOption(app, "--profile", "FILE.json", flags.profile,
            "Write the median time of every op over the steps of rank 0, for weft plan and "
            "transpile");
}

}  // namespace

void AddRunFlags(CLI::App& app, RunFlags& flags) {
  AddInputFlags(app, flags);
  AddCourseFlags(app, flags);
  AddValidationFlags(app, flags);
  AddOutputFlags(app, flags);
}

void CheckRunFlags(const CLI::App& app, RunFlags& flags) {
  CheckStandardInput({{"MAIN", flags.main},
                      {"--startup", flags.startup},
                      {"--server", flags.server},
                      {"--params", flags.params},
                      {"--params_names", flags.params_names},
                      {"--feeds", flags.feeds},
                      {"--resume", flags.resume}});
  Require(!HasNames(flags.params) || flags.params_names.empty(), "--params_names",
          "only a save_combine file needs it");
  Require(!absl::EndsWith(flags.save, ".pdopt"), "--save",
          "expected a .pdparams file; the .pdopt file is written beside it");
  const bool knows_steps = !flags.feeds.empty() || flags.steps.has_value() || !flags.resume.empty();
  Require(knows_steps || flags.by_steps, "--steps", "required without --feeds");
  Require(flags.keep_best.empty() || !flags.checkpoint.empty(), "--keep_best",
          "expected --checkpoint FILE, beside which it keeps FILE.best");
  Require(flags.valid.main.empty() || flags.server.empty(), "--valid",
          "expected a run without --server: parameter servers have the parameters");
  Require(flags.save_every == 0 || flags.valid_every % flags.save_every == 0, "--valid_every",
          "expected a multiple of --save_every");
  flags.run.checkpoint_every = flags.save_every > 0 ? flags.save_every : flags.valid_every;
  if (flags.quiet) {
    flags.say = [](const Said& said) {
      if (said.severity != Severity::kNote) Print(kRunCommand, said);
    };
  }
  flags.valid.say = flags.say;
  const auto values = ParseHostValues(flags.schedule.set);
  Require(values.ok(), "--set", values.status().message());
  flags.has_ranks = app.count("--ranks") > 0;
  flags.has_seed = app.count("--seed") > 0;
  if (app.count("--lr_schedule") > 0) {  // which may be empty
    const absl::Status status = CheckLrSchedule(flags.schedule.lr_schedule);
    Require(status.ok(), "--lr_schedule", status.message());
  }
}

}  // namespace weft
