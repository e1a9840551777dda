// The real programs that tests run over.
#ifndef WEFT_TESTS_SUPPORT_MODELS_H_
#define WEFT_TESTS_SUPPORT_MODELS_H_

#include <map>
#include <string>

#include "proto/program.h"

namespace weft::testing {

// A model as Paddle wrote it. Copies share the bytes.
struct Model {
  Program main;
  Program startup;
};

// All models of an archive by name: of Paddle 2.6 (//tests:programs) or 3.3 (//tests:programs3),
// which a test has in its data. Dies where the archive cannot be read or holds a program that
// cannot.
inline constexpr char kPaddle2Models[] = "tests/data/programs.tar.xz";
inline constexpr char kPaddle3Models[] = "tests/data/paddle3_programs.tar.xz";
std::map<std::string, Model> ReadModels(const std::string& archive = kPaddle2Models);

}  // namespace weft::testing

#endif  // WEFT_TESTS_SUPPORT_MODELS_H_
