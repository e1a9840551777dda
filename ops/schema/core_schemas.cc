#include "ops/schema/families.h"

namespace weft {

void AddCoreSchemas(OpSchemaTable* schemas) {
  AddActivationSchemas(schemas);
  AddClipSchemas(schemas);
  AddCopySchemas(schemas);
  AddElementwiseSchemas(schemas);
  AddOrderStatisticsSchemas(schemas);
  AddReduceSchemas(schemas);
  AddSumSchemas(schemas);
  AddWhereSchemas(schemas);
  AddConcatSplitSchemas(schemas);
  AddCreationSchemas(schemas);
  AddGatherScatterSchemas(schemas);
  AddRandomSchemas(schemas);
  AddReshapeSchemas(schemas);
  AddSelectedRowsSchemas(schemas);
  AddSetValueSchemas(schemas);
  AddStridedViewsSchemas(schemas);
  AddViewSchemas(schemas);
  AddDropoutSchemas(schemas);
  AddLookupTableSchemas(schemas);
  AddMatmulSchemas(schemas);
  AddNormSchemas(schemas);
  AddRnnSchemas(schemas);
  AddWindowSchemas(schemas);
  AddLossSchemas(schemas);
  AddMetricsSchemas(schemas);
  AddAmpSchemas(schemas);
  AddOptimizerSchemas(schemas);
  AddCollectiveSchemas(schemas);
  AddControlSchemas(schemas);
  AddPrintSchemas(schemas);
  AddServerSchemas(schemas);
}

}  // namespace weft
