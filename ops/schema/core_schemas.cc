#include "ops/schema/families.h"

namespace weft {

void AddCoreSchemas(OpSchemaTable* schemas) {
  AddActivationSchemas(schemas);
  AddClipSchemas(schemas);
  AddComparisonSchemas(schemas);
  AddCopySchemas(schemas);
  AddCumulativeSchemas(schemas);
  AddElementwiseSchemas(schemas);
  AddOrderStatisticsSchemas(schemas);
  AddPreluSchemas(schemas);
  AddReduceSchemas(schemas);
  AddSumSchemas(schemas);
  AddSwigluSchemas(schemas);
  AddWhereSchemas(schemas);
  AddConcatSplitSchemas(schemas);
  AddCreationSchemas(schemas);
  AddGatherScatterSchemas(schemas);
  AddOneHotSchemas(schemas);
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
  AddSoftmaxSchemas(schemas);
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
