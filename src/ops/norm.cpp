// Normalization.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> norm_ops() { return {}; }

}  // namespace aeshna
