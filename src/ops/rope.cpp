// Rotary position embedding.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> rope_ops() { return {}; }

}  // namespace aeshna
