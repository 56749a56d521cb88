// Scans and orders.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> order_ops() { return {}; }

}  // namespace aeshna
