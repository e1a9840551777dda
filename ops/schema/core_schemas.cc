#include "ops/schema/families.h"

namespace weft {

void AddCoreSchemas(OpSchemaTable* schemas) {
  const auto add_all = [schemas](auto... add) { (add(schemas), ...); };
  add_all(AddActivationSchemas, AddClipSchemas, AddCopySchemas, AddElementwiseSchemas,
          AddOrderStatisticsSchemas, AddReduceSchemas, AddSumSchemas, AddWhereSchemas,
          AddConcatSplitSchemas, AddCreationSchemas, AddGatherScatterSchemas, AddRandomSchemas,
          AddReshapeSchemas, AddSelectedRowsSchemas, AddSetValueSchemas, AddStridedViewsSchemas,
          AddViewSchemas, AddDropoutSchemas, AddLookupTableSchemas, AddMatmulSchemas,
          AddNormSchemas, AddRnnSchemas, AddWindowSchemas, AddLossSchemas, AddMetricsSchemas,
          AddAmpSchemas, AddOptimizerSchemas, AddCollectiveSchemas, AddControlSchemas,
          AddPrintSchemas, AddServerSchemas);
}

}  // namespace weft
