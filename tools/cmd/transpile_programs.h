// What transpile does between its inputs and its outputs.
#ifndef WEFT_TOOLS_CMD_TRANSPILE_PROGRAMS_H_
#define WEFT_TOOLS_CMD_TRANSPILE_PROGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "tools/cmd/transpile_flags.h"
#include "tools/files/certificate.h"
#include "transpiler/transpile.h"

namespace weft {

// Completes the options and the plan of parsed flags (CheckFlags) with what the programs, and files
// that flags name, say. Errors begin with the name of a program or a file.
absl::Status PrepareTranspile(const ProgramPair& programs, TranspileFlags* flags);

// The path of an output for a trainer. Empty if the output of trainer 0 holds for all.
std::string PathFor(const std::string& path, int trainer);

// What --certificate claims of a result.
CertificateClaim ClaimOf(const TranspileFlags& flags, const TranspileResult& result);

// Rewrites the programs of one trainer, or with --rank all those of every one, in place; after an
// error, discard them. `options`: those of the flags, to which a caller may add. Errors begin with
// TranspileFlags::in.
absl::StatusOr<std::vector<TranspileResult>> TranspileTrainers(const TranspileFlags& flags,
                                                               const TranspileOptions& options,
                                                               absl::Span<ProgramPair> trainers);

}  // namespace weft

#endif  // WEFT_TOOLS_CMD_TRANSPILE_PROGRAMS_H_
