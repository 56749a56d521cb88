// Convolutions.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> conv_ops() { return {}; }

}  // namespace aeshna
