// The file of `transpile --explain`.
#ifndef WEFT_TOOLS_EXPLAIN_JSON_H_
#define WEFT_TOOLS_EXPLAIN_JSON_H_

#include <string>

#include "transpiler/transpile.h"

namespace weft {

// JSON: {"passes": [{"pass", "changed", "main_ops", "startup_ops"}], "notes": [{"pass", "subject",
// "what", "why", ...details}]}. Equal results give equal bytes: times are left out.
std::string ExplainJson(const TranspileResult& result);

}  // namespace weft

#endif  // WEFT_TOOLS_EXPLAIN_JSON_H_
