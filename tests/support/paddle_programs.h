// The programs of the archives, each by itself.
#ifndef WEFT_TESTS_SUPPORT_PADDLE_PROGRAMS_H_
#define WEFT_TESTS_SUPPORT_PADDLE_PROGRAMS_H_

#include <string>
#include <vector>

#include "proto/program.h"

namespace weft::testing {

struct NamedProgram {
  std::string name;  // in the archive: "fit_a_line/main.pb"
  Program program;
};

// Read once, at the first call. Die where the archive cannot be read or holds a program that
// cannot.

// Main and startup programs of all models, as Paddle wrote them: //tests:programs must be in the
// data of the test.
const std::vector<NamedProgram>& PaddlePrograms();
// What Paddle's transpiler made of them: //tests:goldens.
const std::vector<NamedProgram>& PaddleGoldens();

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_PADDLE_PROGRAMS_H_
