// A large training program for benchmarks, shaped and named as Paddle writes them.
#ifndef WEFT_TESTS_BENCHMARKS_GENERATED_PROGRAM_H_
#define WEFT_TESTS_BENCHMARKS_GENERATED_PROGRAM_H_

#include <cstdint>
#include <string>

namespace weft {

struct GeneratedProgramOptions {
  // Ops in all: forward, backward, and one update per parameter.
  int64_t num_ops = 1000000;
  // Parameters, each with a gradient that one backward op completes.
  int64_t num_gradients = 20000;
  // All: those that Paddle 2.6 writes, about 370 bytes an op. Few: those of older versions, without
  // use_mkldnn, op_device, op_namescope, with_quant_attr and empty ones; about 270 bytes an op.
  enum class Attributes { kAll, kFew };
  Attributes attributes = Attributes::kAll;
};

// A serialized ProgramDesc of one block: a chain of layers, each with one parameter, its loss, the
// backward ops in reverse and an adam op per parameter. Names, slots and attributes are those of a
// transformer as Paddle saves it, without op_callstack.
std::string GenerateProgram(const GeneratedProgramOptions& options);

// Its startup program: a fill of each persistable variable.
std::string GenerateStartup(const GeneratedProgramOptions& options);

}  // namespace weft

#endif  // WEFT_TESTS_BENCHMARKS_GENERATED_PROGRAM_H_
