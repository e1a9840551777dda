// The real programs that tests run over.
#ifndef WEFT_TESTS_MODELS_H_
#define WEFT_TESTS_MODELS_H_

#include <map>
#include <string>

#include "proto/program.h"

namespace weft::testing {

// A model as Paddle wrote it. Copies share the bytes.
struct Model {
  Program main;
  Program startup;
};

// All models of tests/data/programs.tar.xz by name. A test that calls it has //tests:programs in
// its data. Dies where the archive cannot be read or holds a program that cannot.
std::map<std::string, Model> ReadModels();

}  // namespace weft::testing

#endif  // WEFT_TESTS_MODELS_H_
