// The verifier's findings as JSON: a contract with programs that read it.
#ifndef WEFT_TOOLS_FINDINGS_JSON_H_
#define WEFT_TOOLS_FINDINGS_JSON_H_

#include <string>

#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "tools/numeric/report.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/verify.h"

namespace weft {

// An indented object with these keys, followed by a newline:
//   verified   true if there is no error and, if programs were run, no difference
//   findings   a list, in the order of Findings::all(): rule, severity, rank (null if one program
//              is for all ranks), startup, op, other, variable, message; op and other are
//              objects with block, index and type, or null
//   omitted    the number of findings that were dropped, by rule
//   numeric    if programs were run: verdict ("equal bit by bit", "equal within rounding",
//              "different"), nranks, steps, batch; compared, rank_local, rough and unchanged:
//              lists of names; largest_rounding (or null) and the list
//              differences: variable, parameter, among_ranks, rank, step, index, expected, found,
//              relative, of_original
// `ranks`: the programs that were verified. `numeric` may be null.
std::string FindingsJson(const Findings& findings, absl::Span<const ConstProgramPair> ranks,
                         const NumericReport* numeric);

}  // namespace weft

#endif  // WEFT_TOOLS_FINDINGS_JSON_H_
