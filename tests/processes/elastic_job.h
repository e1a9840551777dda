// Elastic jobs with a fault, compared with a run that has none.
#ifndef WEFT_TESTS_PROCESSES_ELASTIC_JOB_H_
#define WEFT_TESTS_PROCESSES_ELASTIC_JOB_H_

#include <string>
#include <vector>

#include "absl/types/optional.h"
#include "tools/job/run_outputs_testing.h"

namespace weft::testing {

struct ElasticOptions {
  int processes = 4;
  int ranks = 1;  // of each
  Args launch_flags = {};
  Args run_flags = {};
  int hosts = 1;  // or more, which share out the processes
};

struct ElasticOutcome {
  int status = 0;
  std::string out, err;       // of several hosts, the standard output is that of the first
  bool has_happened = false;  // the fault
  int generations = 1;
  // From the fault until the others know; until the run goes on. None: it does not.
  absl::optional<double> notice_s, go_on_s;
  // What is not as without a fault; empty: nothing.
  std::string difference;
};

// A program of one mode.
class ElasticProgram {
 public:
  struct Mode {
    std::string name;
    std::string data;  // a folder of tests/data
    Args transpile_flags;
  };
  // A few of all modes: replicated state, parameters, residuals and buffers of each rank, random
  // draws, state that a skipped block leaves.
  static const std::vector<Mode>& Modes();

  static constexpr int kSteps = 5, kSaveEvery = 2;

  explicit ElasticProgram(const Mode& mode);

  // `fault` as in weft_with_faults.cc. Steps, checkpoints, metrics and parameters are as many ranks
  // compute them that are threads of one process.
  ElasticOutcome Run(const std::string& fault, const ElasticOptions& options = {});
  // Whether a run that goes on from the checkpoint of a job saves what one saves without a fault.
  bool ResumesWell(int ranks);

 private:
  struct Outputs {
    std::string save, checkpoint, best, metrics, lines;  // best: of --keep_best
  };
  Args RunArgs(const Args& flags) const;
  const Outputs& Expected(int ranks, const Args& flags);
  Outputs Read(const std::string& out) const;

  const Mode mode_;
  const std::string main_, startup_, save_, checkpoint_, metrics_;
  std::vector<std::pair<std::string, Outputs>> expected_;
};

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROCESSES_ELASTIC_JOB_H_
