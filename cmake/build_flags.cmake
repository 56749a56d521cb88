# The compiler options of the library, the program, the tests and the benchmarks.
set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON) # the static library may end up in a shared one
set(CMAKE_CXX_VISIBILITY_PRESET hidden) # a host may carry its own volk, glslang, zlib
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR "Aeshna needs g++ 13 or newer; this is ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}. "
                      "scripts/setup.sh installs g++-14; set CXX=g++-14 and configure again in an empty folder.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 17)
  message(FATAL_ERROR "Aeshna needs clang 17 or newer; this is ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}.")
endif()

add_library(aeshna_flags INTERFACE)
target_compile_definitions(aeshna_flags INTERFACE AESHNA_VERSION="${PROJECT_VERSION}")
if(AESHNA_DEBUG_COUNTERS)
  target_compile_definitions(aeshna_flags INTERFACE AESHNA_DEBUG_COUNTERS=1)
endif()

if(MSVC)
  target_compile_options(aeshna_flags INTERFACE /W4 /permissive- /utf-8 /bigobj /Zc:preprocessor /Zc:__cplusplus)
  target_compile_definitions(aeshna_flags INTERFACE NOMINMAX WIN32_LEAN_AND_MEAN _CRT_SECURE_NO_WARNINGS)
  if(AESHNA_WERROR)
    target_compile_options(aeshna_flags INTERFACE /WX)
  endif()
else()
  # No contraction of a*b+c: the interpreter, the oracle and the device agree on what is rounded.
  target_compile_options(aeshna_flags INTERFACE -Wall -Wextra -Wpedantic -ffp-contract=off
                                                -ffunction-sections -fdata-sections
                                                "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
  if(AESHNA_WERROR)
    target_compile_options(aeshna_flags INTERFACE -Werror)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC sees uninitialized members in moved-from std::variant alternatives that have none.
      target_compile_options(aeshna_flags INTERFACE -Wno-error=maybe-uninitialized)
    endif()
  endif()
  if(AESHNA_SANITIZE)
    target_compile_options(aeshna_flags INTERFACE -fsanitize=${AESHNA_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(aeshna_flags INTERFACE -fsanitize=${AESHNA_SANITIZE})
    if(AESHNA_SANITIZE MATCHES "undefined")
      # Not vptr: glslang is built without the type information that it needs.
      target_compile_options(aeshna_flags INTERFACE -fno-sanitize-recover=undefined -fno-sanitize=vptr)
    endif()
  endif()
  if(AESHNA_FUZZ)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      message(FATAL_ERROR "AESHNA_FUZZ needs clang, which has libFuzzer; this is ${CMAKE_CXX_COMPILER} (CONTRIBUTING.md says how to get it)")
    endif()
    target_compile_options(aeshna_flags INTERFACE -fsanitize=fuzzer-no-link)
  endif()
endif()

find_package(Threads REQUIRED)

# Half a megabyte of relative relocations as bits (DT_RELR), where linker and loader know them.
if(UNIX AND NOT APPLE AND NOT CMAKE_CROSSCOMPILING)
  include(CheckCXXSourceRuns)
  set(CMAKE_REQUIRED_LINK_OPTIONS "-Wl,-z,pack-relative-relocs")
  check_cxx_source_runs("const char* names[] = {\"a\", \"b\"}; int main(int n, char**) { return names[n - 1][0] - 'a'; }"
    AESHNA_PACKED_RELOCATIONS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
endif()

# aeshna_static_runtime(target): links the compiler's C++ libraries statically, so that the program needs only libc and
# libm where it runs. Not with sanitizers, which must be able to intercept them.
function(aeshna_static_runtime target)
  if(UNIX AND NOT APPLE AND NOT AESHNA_SANITIZE)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,--gc-sections -Wl,--as-needed)
    if(AESHNA_PACKED_RELOCATIONS)
      target_link_options(${target} PRIVATE "-Wl,-z,pack-relative-relocs")
    endif()
  endif()
endfunction()

# aeshna_small_code(target): for what runs rarely and is large, such as tables and options. The program has a size to keep.
function(aeshna_small_code target)
  if(NOT MSVC)
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-Os>)
  endif()
endfunction()
