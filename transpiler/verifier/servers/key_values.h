// Layer 5: values that pass from key to key in the program of parameter servers.
#ifndef WEFT_TRANSPILER_VERIFIER_SERVERS_KEY_VALUES_H_
#define WEFT_TRANSPILER_VERIFIER_SERVERS_KEY_VALUES_H_

#include "ops/analysis/core/server_keys.h"
#include "proto/program.h"
#include "transpiler/verifier/findings/finding.h"

namespace weft {

// W520: servers compute for a key what its ops compute alone, in whatever order keys come, and
// however many servers there are. That is so if no variable that an op of a key writes keeps its
// value for the next step and is used by another key, and if each other value that an op reads is
// equal to the one that ops of its own key have written last. Scalars that several keys receive
// are equal if workers push the same variable, unchanged in between, and servers wait for all of
// them: they may share a variable.
//
// `keys`: of `server`, each with one push in `worker` that has as many values as the server
// receives. O(arguments of both programs).
void CheckKeyValues(const Program& worker, const Program& server, const ServerKeys& keys,
                    bool is_async, Findings* findings);

}  // namespace weft

#endif  // WEFT_TRANSPILER_VERIFIER_SERVERS_KEY_VALUES_H_
