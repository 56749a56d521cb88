// Resizing.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> resize_ops() { return {}; }

}  // namespace aeshna
