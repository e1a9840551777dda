// A main and a startup program, written together.
#ifndef WEFT_TESTS_SUPPORT_PROGRAM_PAIR_BUILDER_H_
#define WEFT_TESTS_SUPPORT_PROGRAM_PAIR_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/op_role.h"
#include "proto/program.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {

struct ProgramPairBuilder {
  ProgramBuilder main, startup;

  // A persistable variable of the main program's current block, which the startup program fills.
  void State(const std::string& name, const std::vector<int64_t>& dims, pb::VarType::Type type,
             float value);
};

// An op that fills a variable.
void FillConstant(ProgramBuilder* program, const std::string& name,
                  const std::vector<int64_t>& dims, pb::VarType::Type type, float value,
                  int role = kRoleForward);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_PROGRAM_PAIR_BUILDER_H_
