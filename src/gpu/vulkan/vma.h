#pragma once
// The Vulkan Memory Allocator as every file of this folder sees it: functions come from the device's own table.
#include "gpu/vulkan/vk.h"

#define VMA_STATIC_VULKAN_FUNCTIONS 0
#define VMA_DYNAMIC_VULKAN_FUNCTIONS 1
#include <vk_mem_alloc.h>
