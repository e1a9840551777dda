// --assume: what the user says of unregistered ops.
#ifndef WEFT_TOOLS_FLAGS_ASSUME_FLAG_H_
#define WEFT_TOOLS_FLAGS_ASSUME_FLAG_H_

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/op_assumptions.h"
#include "proto/program.h"

namespace weft {

CLI::Option* AddAssumeFlag(CLI::App* app, std::string* assume);

// A program and the file that it was read from.
struct ProgramOfFile {
  Program* program = nullptr;
  std::string path;
};

// Puts into the settings of programs what the flag says of unregistered ops, and what the settings
// of their files say (SettingOfFile); the flag counts more. InvalidArgument, naming the flag, for
// another text, and for an op type of which no program has an op, or which is registered.
absl::Status AssumeOps(absl::string_view flag, absl::Span<const ProgramOfFile> programs);
// The same of a program with which others are compared: what `program` assumes.
void AssumeAs(const Program& program, Program* original);

// What the verdict on a program rests on, one line each: what is assumed of its unregistered ops,
// with the flag or "setting of the file" that says so, and that the others exchange nothing. None
// of a program that does not communicate.
std::vector<std::string> AssumedOfOps(const ProgramFacts& facts, absl::string_view flag);

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_ASSUME_FLAG_H_
