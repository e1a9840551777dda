// The variables that a program is fed.
#ifndef WEFT_OPS_ANALYSIS_TRAINING_DATA_VARIABLES_H_
#define WEFT_OPS_ANALYSIS_TRAINING_DATA_VARIABLES_H_

#include "absl/container/flat_hash_set.h"
#include "ops/analysis/core/program_facts.h"
#include "proto/program.h"

namespace weft {

// The data variables of a program: those of the root block that are marked (Var::need_check_feed),
// those of any block that ops of feeds and readers write (HandsOutData), and the tensors of the
// root block that an op of any block reads before any op writes them. If some are marked, or fed by
// ops, only those of the latter with an unknown dimension that an op of the forward pass reads, no
// op writes, and that have no gradient: others may be a mistake. O(arguments).
absl::flat_hash_set<VarId> FindData(const Program& program);

// Of these, those of the root block that ops read as they are fed: no other op writes them, in any
// block. And the copies of these between memories (CopiesFrom) that nothing else writes.
// O(arguments).
absl::flat_hash_set<VarId> FindUnchangedData(const ProgramFacts& facts);

}  // namespace weft

#endif  // WEFT_OPS_ANALYSIS_TRAINING_DATA_VARIABLES_H_
