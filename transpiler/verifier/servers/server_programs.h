// Layer 5: do the programs of workers and parameter servers fit? And what they compute together.
#ifndef WEFT_TRANSPILER_VERIFIER_SERVERS_SERVER_PROGRAMS_H_
#define WEFT_TRANSPILER_VERIFIER_SERVERS_SERVER_PROGRAMS_H_

#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// Whether an op of any block is one between workers and servers. O(ops).
bool HasServerOps(const Program& program);

// W511 to W517, W519, W520. `server` may be null: then all keys lack a server. O(arguments of both
// programs).
void CheckServers(const ProgramFacts& worker, const Program* server, Findings* findings);

// Whether servers update by the gradient of each worker, without waiting for the others.
bool IsAsynchronous(const Program& server);

// The parameters that servers hold, and the state of their optimizers.
std::set<std::string> HeldByServers(const Program& server);

// The program of a data-parallel rank that computes what a worker and the servers do, if servers
// wait for all workers. Where the worker sends a gradient, a collective merges it into a new
// variable, and the ops of the server follow; parameters and state are persistable, as on the
// server. What workers and servers say to each other is gone: the result rests on CheckServers, and
// on servers that wait for all workers and answer with what they hold (executor/run/server_rank.h).
// Both programs must be without errors of CheckServers. InvalidArgument: the errors of a Rewriter.
absl::StatusOr<Program> JoinServers(const Program& worker, const Program& server);

// Whether the joined program has the variable for one of the server that is not persistable.
bool IsOnServer(absl::string_view variable);

// The startup program of that rank: what servers hold is equal on all ranks, as after a broadcast.
absl::StatusOr<Program> JoinStartup(const Program& startup, const Program& server);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_SERVERS_SERVER_PROGRAMS_H_
