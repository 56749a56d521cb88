// Attention.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> attention_ops() { return {}; }

}  // namespace aeshna
