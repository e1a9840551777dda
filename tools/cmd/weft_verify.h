// weft verify, without its files and its output.
#ifndef WEFT_TOOLS_CMD_WEFT_VERIFY_H_
#define WEFT_TOOLS_CMD_WEFT_VERIFY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "proto/program.h"
#include "proto/program_pair.h"
#include "proto/setting.h"
#include "tools/flags/setting_flags.h"
#include "tools/numeric/report.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

struct VerifyFlags {
  std::vector<std::string> mains, startups;  // messages have these names
  std::string original, original_startup, server;
  SettingFlags setting;
  absl::optional<int> expression_depth;
  bool numeric = false;
  int64_t steps = 2;
  std::string format = "text";
  bool short_lines = false;
  std::string explain;      // a rule; empty: verify
  std::string certificate;  // a directory
};

// The flags and their checks.
void AddVerifyFlags(CLI::App* app, VerifyFlags* flags);

// All programs of a command, as the flags name them; `ranks` points to them.
struct VerifiedPrograms {
  std::vector<std::shared_ptr<const Program>> mains, startups;
  absl::optional<Program> original, original_startup, server;
  std::vector<ConstProgramPair> ranks;

  ConstProgramPair Original() const {
    return {original.has_value() ? &*original : nullptr,
            original_startup.has_value() ? &*original_startup : nullptr};
  }
};

// What a verdict is about.
struct VerdictScope {
  absl::optional<int> nranks;  // none: any number
  bool communicates = false;
  std::vector<std::string> layers;       // checked
  std::vector<std::string> assumptions;  // one line each
  bool has_races_of_streams = false;     // alone: Paddle's executor does not have them
};

struct Verdict {
  Findings findings;
  VerdictScope scope;
  Setting::Reduction reduction = Setting::Reduction::kByLoss;
  absl::optional<NumericReport> numeric;  // none: not asked for, or `not_run`
  std::string not_run;  // why programs with errors were not run; empty: they were, or need not
  bool IsRight() const;
};

// Verifies programs whose `ranks` are not set yet: sets these, and completes the programs with what
// the flags say of ops. Errors begin with the name of a program, or with a flag.
absl::StatusOr<Verdict> VerifyPrograms(const VerifyFlags& flags, VerifiedPrograms* programs);

// What the command prints: the verdict as text, one or more lines for each finding, and as JSON.
std::string VerdictText(const Verdict& verdict, const VerifiedPrograms& programs, bool short_lines);
std::string VerdictJson(const Verdict& verdict, const VerifiedPrograms& programs);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_WEFT_VERIFY_H_
