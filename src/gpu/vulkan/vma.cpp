// The one file with the implementation of the Vulkan Memory Allocator.
#include "gpu/vulkan/vk.h"

#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#define VMA_IMPLEMENTATION
#include "gpu/vulkan/vma.h"
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
