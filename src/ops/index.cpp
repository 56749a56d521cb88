// Indexing.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> index_ops() { return {}; }

}  // namespace aeshna
