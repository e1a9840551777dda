#include "ops/schema/server_ops.h"

namespace weft {
namespace {

struct Row {
  absl::string_view type;
  ServerOp op;
};

constexpr Row kServerOps[] = {
    {"ps_lookup", ServerOp::kLookup},     {"ps_lookup_grad", ServerOp::kLookupGrad},
    {"ps_prefetch", ServerOp::kPrefetch}, {"ps_pull", ServerOp::kPull},
    {"ps_push", ServerOp::kPush},         {"ps_receive", ServerOp::kReceive},
    {"ps_serve", ServerOp::kServe},
};

}  // namespace

absl::optional<ServerOp> FindServerOp(absl::string_view op_type) {
  for (const Row& row : kServerOps) {
    if (row.type == op_type) return row.op;
  }
  return absl::nullopt;
}

absl::string_view ServerOpType(ServerOp op) {
  for (const Row& row : kServerOps) {
    if (row.op == op) return row.type;
  }
  return "";
}

}  // namespace weft
