# What Aeshna is built from (docs/dependencies.md says why). Everything with code in it is linked statically; the Vulkan
# loader is opened at run time by volk and never linked.

# The same file finds what an installed static library needs: see aeshna-config.cmake.in.
include("${CMAKE_CURRENT_LIST_DIR}/aeshna-static-dependencies.cmake")
aeshna_find_static_dependencies(REQUIRED)

# What is only needed to compile Aeshna itself.
find_package(nlohmann_json CONFIG REQUIRED)

find_path(AESHNA_VOLK_INCLUDE_DIR volk.h DOC "Folder of volk.h and volk.c (Debian: libvulkan-volk-dev)")
find_path(AESHNA_VMA_INCLUDE_DIR vk_mem_alloc.h DOC "Folder of vk_mem_alloc.h (Debian: libvulkan-memory-allocator-dev)")
find_path(AESHNA_VULKAN_INCLUDE_DIR vulkan/vulkan.h DOC "Folder of vulkan/vulkan.h (Debian: libvulkan-dev)")
foreach(what VOLK VMA VULKAN)
  if(NOT AESHNA_${what}_INCLUDE_DIR)
    get_property(doc CACHE AESHNA_${what}_INCLUDE_DIR PROPERTY HELPSTRING)
    message(FATAL_ERROR "A dependency is missing: ${doc}. scripts/setup.sh installs what Debian and Ubuntu have.")
  endif()
endforeach()
add_library(aeshna_vulkan_headers INTERFACE) # volk, VMA, Vulkan: for src/gpu/vulkan alone
target_include_directories(aeshna_vulkan_headers SYSTEM INTERFACE
  ${AESHNA_VOLK_INCLUDE_DIR} ${AESHNA_VMA_INCLUDE_DIR} ${AESHNA_VULKAN_INCLUDE_DIR})

# What each layer compiles against, besides Aeshna's own headers.
set(AESHNA_NEEDS_gpu aeshna_vulkan_headers)
set(AESHNA_NEEDS_codegen glslang::glslang glslang::SPIRV)
set(AESHNA_NEEDS_runtime nlohmann_json::nlohmann_json)
include(onnx_schema)
set(AESHNA_NEEDS_io nlohmann_json::nlohmann_json ZLIB::ZLIB aeshna_onnx_schema)
set(AESHNA_NEEDS_nn nlohmann_json::nlohmann_json)
