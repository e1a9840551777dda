// What the verifier found, as JSON: a contract with programs that read it.
#ifndef WEFT_TOOLS_FINDINGS_JSON_H_
#define WEFT_TOOLS_FINDINGS_JSON_H_

#include <string>

#include "absl/types/span.h"
#include "proto/program_pair.h"
#include "tools/numeric/report.h"
#include "transpiler/verify/finding.h"
#include "transpiler/verify/verify.h"

namespace weft {

// An object with these keys, indented, ending in a newline:
//   verified   true where there is no error and, if programs were run, no difference
//   findings   a list, in the order of Findings::all(): rule, severity, rank (null where there is
//              one program for all), startup, op, other, variable, message; op and other are
//              objects with block, index and type, or null where there is none
//   omitted    how many findings were not kept, by rule
//   numeric    where programs were run: verdict ("equal bit by bit", "equal within rounding",
//              "different"), nranks, steps, batch; compared, own_to_ranks, rough and unchanged:
//              lists of names; largest_rounding (null where there is none) and the list
//              differences: variable, parameter, among_ranks, rank, step, index, expected, found,
//              relative, of_original
// `ranks`: the programs that were verified. `numeric` may be null.
std::string FindingsJson(const Findings& findings, absl::Span<const ConstProgramPair> ranks,
                         const NumericReport* numeric);

}  // namespace weft

#endif  // WEFT_TOOLS_FINDINGS_JSON_H_
