// What the lines of the verifier name as causes of differences between ranks and one device.
#ifndef WEFT_TESTS_PROPERTIES_NAMED_CAUSES_H_
#define WEFT_TESTS_PROPERTIES_NAMED_CAUSES_H_

#include <set>
#include <string>
#include <vector>

#include "ops/analysis/values/batch_flow.h"
#include "proto/program.h"

namespace weft::testing {

// Variables that depend on an output of one of the ops, or on one of the variables, within so many
// steps.
std::set<std::string> Downstream(const Program& program, const std::set<OpId>& ops,
                                 std::set<std::string> variables, int steps);

// Variables whose difference has its cause, so many steps ago at most, among the lines ("warning:
// W703: state s is ...: op 8 (sum) makes it of ..."): that depend on an op or on a state,
// parameter, gradient or loss that one of them names. Gradients depend on the loss. Where a line
// counts others, as in "as do 3 other ops", they are those of `flow`.
std::set<std::string> NamedAsDifferent(const Program& main, const BatchFlow& flow,
                                       const std::vector<std::string>& lines, int steps);

}  // namespace weft::testing

#endif  // WEFT_TESTS_PROPERTIES_NAMED_CAUSES_H_
