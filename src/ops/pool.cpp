// Pooling.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> pool_ops() { return {}; }

}  // namespace aeshna
