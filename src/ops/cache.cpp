// Key-value caches.
#include "ops/families.h"

namespace aeshna {

std::vector<OpDef> cache_ops() { return {}; }

}  // namespace aeshna
